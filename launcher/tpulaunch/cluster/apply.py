"""Submission: the wanted object brought to the cluster by dry run and server-side apply, refusals told by field."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.diff import Difference
from tpulaunch.cluster.errors import ApiError, ApiStatus, Refusal, RefusedError
from tpulaunch.cluster.kinds import JOBSET, POD
from tpulaunch.cluster.masking import mask_text
from tpulaunch.cluster.objects import (
    LABEL_JOBSET,
    LABEL_MANAGED_BY,
    Object,
    dig,
    is_deleting,
    label_of,
    name_of,
    uid_of,
)
from tpulaunch.cluster.reconcile import Apply, AwaitEnd, Delete, Desired, Done, Observed, Probe, Stop, decide
from tpulaunch.cluster.wait import Deadline, await_gone
from tpulaunch.errors import ConflictError, LauncherError, NotFoundError

Verb = Literal["created", "configured", "unchanged", "replaced"]
Notify = Callable[[str], None]
#: Times the state may change under our hands before we give up.
_ATTEMPTS = 12
_MANY = 8

_INVALID = re.compile(
    r"(?P<field>[A-Za-z][\w.\-\[\]]*): (?P<kind>Invalid value|Required value|Unsupported value|Forbidden|"
    r"Duplicate value|Not found|Too long|Too many|Internal error)(?:: (?P<rest>.*))?",
    re.DOTALL,
)
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"(?:unknown field \"([^\"]+)\"|(\.[\w.\[\]=\"]+): field not declared in schema)")


@dataclass(frozen=True)
class Submitted:
    """What a submission did.

    Attributes:
        verb: What happened to the object.
        jobset: The object as the server has it (after a dry run: as it would have it).
        is_dry_run: Whether nothing was stored.
    """

    verb: Verb
    jobset: Object
    is_dry_run: bool = False


def submit(
    api: Api,
    jobset: Object,
    namespace: str,
    *,
    is_dry_run: bool = False,
    is_replacement: bool = False,
    is_forced: bool = False,
    deadline: Deadline,
    notify: Notify = lambda _: None,
) -> Submitted:
    """Bring a JobSet to the cluster and return what that took.

    Args:
        api: The connection.
        jobset: The rendered object.
        namespace: Where it goes.
        is_dry_run: Ask the server everything, store nothing.
        is_replacement: Delete what is there, wait for its end, create anew.
        is_forced: Take over fields that other managers own.
        deadline: How long to wait for an end.
        notify: Told what is being waited for, in words.

    Raises:
        ConflictError: The live object is not ours, has immutable differences, or others own fields of it.
        RefusedError: The server or a webhook refuses fields.
        NotFoundError: The namespace, or JobSet itself, is not there.
        WaitTimeoutError: What is to be replaced did not end in time.
    """
    name, probed, first_uid = name_of(jobset), False, ""
    _check_installed(api)
    for _ in range(_ATTEMPTS):
        live = api.get(JOBSET, namespace, name)
        first_uid = first_uid or (uid_of(live) if live else "")
        observed = Observed(live, _pods_left(api, namespace, name, live), probed)
        wants_end = is_replacement and live is not None and uid_of(live) == first_uid
        match decide(Desired(jobset, wants_end), observed):
            case Stop(why, found):
                raise _stopped(why, found, live or {}, namespace, api)
            case Done():
                return Submitted("unchanged", live or {}, is_dry_run)
            case Probe(obj, is_new):
                answer = _probe(api, namespace, obj, is_new=is_new and live is not None, is_forced=is_forced)
                probed = True
                if is_dry_run:
                    verb: Verb = "configured" if live else "created"
                    return Submitted("replaced" if live and is_replacement else verb, answer, is_dry_run)
            case Delete(uid):
                notify(f"deleting the live job and waiting until its pods are gone (grace {_grace(live or {})} s)")
                _delete(api, namespace, name, uid)
            case AwaitEnd(uid):
                if is_dry_run:
                    return Submitted("replaced", _probe(api, namespace, jobset, is_new=True, is_forced=is_forced), True)
                notify("waiting until the job of that name, and its pods, are gone")
                await_gone(api, namespace, name, uid or first_uid, deadline)
            case Apply(obj):
                stored, is_created = _apply(api, namespace, obj, is_forced=is_forced)
                if is_created:
                    return Submitted("replaced" if is_replacement and first_uid else "created", stored)
                is_same = dig(live or {}, "metadata", "resourceVersion") == dig(stored, "metadata", "resourceVersion")
                return Submitted("unchanged" if is_same else "configured", stored)
    raise ConflictError(
        f"{JOBSET.spelled}/{name} in namespace {namespace} kept changing; somebody else works on it too"
    )


def _check_installed(api: Api) -> None:
    if api.version_of(JOBSET) is None:
        raise NotFoundError(
            f"{api.where}: the cluster does not know JobSet ({JOBSET.group}/{JOBSET.versions[0]}); "
            "have it installed: https://jobset.sigs.k8s.io/docs/installation/"
        )


def _pods_left(api: Api, namespace: str, name: str, live: Object | None) -> int:
    """Count pods that a deleted job of that name has left and that are ending; they hold the chips."""
    if live is not None:
        return 0
    try:
        pods = api.list_all(POD, namespace, labels=f"{LABEL_JOBSET}={name}")
    except ApiError as error:
        if error.status.code == 403:  # who may create JobSets may not always list pods
            return 0
        raise
    return sum(is_deleting(pod) for pod in pods)


def _grace(live: Object) -> int:
    return int(
        dig(
            live,
            *("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "terminationGracePeriodSeconds"),
            default=30,
        )
    )


def _probe(api: Api, namespace: str, obj: Object, *, is_new: bool, is_forced: bool) -> Object:
    """Dry-run an apply. A replacement is tried under a free name of the same length, since its own is still taken."""
    sent = obj
    if is_new:
        name = name_of(obj)
        letters = (letter for letter in string.ascii_lowercase if letter != name[-1])
        free = next((c for c in letters if api.get(JOBSET, namespace, name[:-1] + c) is None), name[-1])
        sent = {**obj, "metadata": {**obj["metadata"], "name": name[:-1] + free}}
    answer, _ = _apply(api, namespace, sent, is_forced=is_forced, is_dry_run=True)
    if is_new:
        answer = {**answer, "metadata": {**answer.get("metadata", {}), "name": name_of(obj)}}
    return answer


def _apply(api: Api, namespace: str, obj: Object, *, is_forced: bool, is_dry_run: bool = False) -> tuple[Object, bool]:
    placed = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    try:
        return api.apply(JOBSET, namespace, placed, is_dry_run=is_dry_run, is_forced=is_forced)
    except ApiError as error:
        raise explain_refusal(error, name_of(obj), namespace, api) from None


def _delete(api: Api, namespace: str, name: str, uid: str) -> None:
    try:
        api.delete(JOBSET, namespace, name, uid=uid)
    except ApiError as error:
        if error.status.code not in (404, 409):  # gone already, or another of its name: look again
            raise


def _stopped(why: str, found: tuple[Difference, ...], live: Object, namespace: str, api: Api) -> ConflictError:
    what = f"{JOBSET.spelled}/{name_of(live)} in namespace {namespace} ({api.where})"
    if why == "not-ours":
        owner = label_of(live, LABEL_MANAGED_BY)
        made = f"it is managed by {owner!r}" if owner else "it was not made by tpulaunch"
        return ConflictError(f"{what} exists and {made}; choose another metadata.name, or delete it with kubectl")
    shown = [f"  {difference.describe()}" for difference in found[:_MANY]]
    if len(found) > _MANY:
        shown.append(f"  and {len(found) - _MANY} more: tpulaunch diff shows them")
    head = f"{what} exists, and {len(found)} field{'s' if len(found) != 1 else ''} of it cannot change in place:"
    tail = "submit with --replace to end it and start anew (a checkpoint is resumed), or choose another metadata.name"
    return ConflictError("\n".join([head, *shown, tail]))


def explain_refusal(error: ApiError, name: str, namespace: str, api: Api) -> LauncherError:
    """Return the error to raise for a refused apply: short, field by field, without dumps of values."""
    status = error.status
    what = f"{JOBSET.spelled}/{name} in namespace {namespace}"
    if status.code == 404 and f'namespaces "{namespace}" not found' in status.message:
        return NotFoundError(f"namespace {namespace!r} does not exist in {api.where}")
    if status.code == 409 and any(reason == "FieldManagerConflict" for _, reason, _ in status.causes):
        lines = [f"  {field.lstrip('.')}: {_conflict(message)}" for field, _, message in status.causes]
        head = f"{what}: other managers own fields that would change:"
        return ConflictError("\n".join([head, *lines, "take them over with --force-conflicts, or leave them out"]))
    if status.code == 403 and "is forbidden: User" in status.message:
        return LauncherError(f"{api.where}: {status.message}; tpulaunch doctor lists the rights that are needed")
    refusals = refusals_of(status)
    if any("immutable" in refusal.message for refusal in refusals):
        head = f"{what} exists, and the server refuses to change fields of it:"
        lines = [f"  {refusal.describe()}" for refusal in refusals]
        return ConflictError("\n".join([head, *lines, "submit with --replace to end it and start anew"]))
    if status.code in (400, 403, 422, 500):
        return RefusedError(f"{what}: the cluster refuses the object:", refusals)
    return error


def _conflict(message: str) -> str:
    found = re.search(r'conflict with "([^"]+)"', message)
    return f"owned by {found[1]!r}" if found else message


def refusals_of(status: ApiStatus) -> tuple[Refusal, ...]:
    """Return the single faults of a refusal, whoever wrote it: API server, schema, policy or webhook."""
    if unknown := _UNKNOWN_FIELD.findall(status.message):
        return tuple(
            Refusal((first or second).lstrip("."), "the server does not know this field") for first, second in unknown
        )
    if status.causes and status.code == 422:
        return tuple(Refusal(field, _short(message)) for field, _, message in status.causes)
    words, by = status.message, ""
    if found := _WEBHOOK.search(words):
        by, words = f"{found[1]}: ", found[2]
    parts = _split(words)
    return tuple(_refusal(part, by) for part in parts)


def _split(words: str) -> list[str]:
    """Split Go's aggregated errors, ``[a, b]``, at the commas that start another field."""
    if words.startswith("[") and words.endswith("]"):
        return re.split(r", (?=[A-Za-z][\w.\-\[\]]*: )", words[1:-1])
    return [words]


def _refusal(words: str, by: str) -> Refusal:
    found = _INVALID.match(words.strip())
    if not found:
        return Refusal("", by + _short(words))
    rest = found["rest"] or ""
    value, _, detail = rest.rpartition(": ")
    shown = rest if len(value) <= 80 else detail
    return Refusal(found["field"], f"{by}{found['kind']}: {_short(shown)}" if shown else f"{by}{found['kind']}")


def _short(words: str, limit: int = 300) -> str:
    plain = mask_text(" ".join(words.split()))
    if len(plain) <= limit:
        return plain
    detail = plain.rpartition(": ")[2]
    return detail if len(detail) <= limit else plain[:limit] + "…"
