"""Live against rendered: only what we set is compared, so what Kueue and webhooks add is no difference."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from tpulaunch.cluster.masking import MASK, mask_object
from tpulaunch.cluster.objects import LABEL_QUEUE, Object, dig
from tpulaunch.cluster.ownership import FieldPath, applied_fields, format_path, item_with, owners_of, removed_fields

#: Keys that tell the items of a list apart, best first; a list whose items have none of them is compared by position.
_ITEM_KEYS = ("name", "mountPath", "containerPort", "path")
#: Lists to which controllers add items of their own.
_SHARED_LISTS = ("tolerations", "schedulingGates")
_QUANTITY_PARENTS = ("requests", "limits", "sizeLimit")
_SUFFIXES = {
    **dict.fromkeys([""], Decimal(1)),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    "m": Decimal(1) / 1000,
}
#: Sections of a JobSet's spec that never change after creation.
_FIXED_SECTIONS = (
    "replicatedJobs",
    "network",
    "successPolicy",
    "failurePolicy",
    "startupPolicy",
    "coordinator",
    "managedBy",
    "volumeClaimPolicies",
)
#: What of the pod template may change while the job is suspended.
_POD_TEMPLATE = ("template", "spec", "template")
_CHANGEABLE_WHILE_SUSPENDED = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
)
_ABSENT: Any = object()


@dataclass(frozen=True)
class Difference:
    """One field that differs.

    Attributes:
        path: Where.
        kind: ``added``: wanted and not live; ``changed``; ``removed``: set by us once and no longer wanted.
        live: What is there; None if nothing.
        wanted: What is wanted; None if nothing.
        is_immutable: Whether the live object cannot take the change in place.
        owners: Other managers that have set it since.
    """

    path: FieldPath
    kind: Literal["added", "changed", "removed"]
    live: Any
    wanted: Any
    is_immutable: bool
    owners: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return the difference as one line, secrets masked and long values cut."""
        by = f" (set by {', '.join(self.owners)})" if self.owners else ""
        return f"{format_path(self.path)}: {self._words()}{by}"

    def _words(self) -> str:
        live, wanted = (_short(_masked_at(self.path, value)) for value in (self.live, self.wanted))
        match self.kind:
            case "added":
                return f"nothing -> {wanted}"
            case "removed":
                return f"{live} -> nothing"
        return f"{live} -> {wanted}"


def differences(live: Object, wanted: Object) -> tuple[Difference, ...]:
    """Return every field that an apply of ``wanted`` would change, in the order of the document."""
    is_suspended = dig(live, "spec", "suspend") is True
    found = list(_compare(live, wanted, ()))
    found += [(path, _at(live, path), _ABSENT) for path in removed_fields(applied_fields(live), live, wanted) if path]
    return tuple(
        Difference(
            path,
            "added" if old is _ABSENT else "removed" if new is _ABSENT else "changed",
            None if old is _ABSENT else old,
            None if new is _ABSENT else new,
            is_immutable(path, is_suspended=is_suspended),
            owners_of(live, path) if old is not _ABSENT and new is not _ABSENT else (),
        )
        for path, old, new in found
    )


def is_immutable(path: FieldPath, *, is_suspended: bool) -> bool:
    """Say whether JobSet (or Kueue) refuses a change of this field on a live object."""
    names = tuple(step for step in path if isinstance(step, str))
    if names[:2] == ("metadata", "labels") and path[-1] == LABEL_QUEUE:
        return not is_suspended
    if len(names) < 2 or names[0] != "spec" or names[1] not in _FIXED_SECTIONS:
        return False
    inner = names[2:]
    if names[1] == "replicatedJobs" and is_suspended and inner[:3] == _POD_TEMPLATE:
        return not any(inner[3:5] == changeable for changeable in _CHANGEABLE_WHILE_SUSPENDED)
    return True


def adopt(live: Object, wanted: Object) -> Object:
    """Return what to apply: ``wanted``, with the lists that controllers add to taken over where they hold all of ours.

    Such a list is one field to the server: sending our part alone would take away theirs, or end in a conflict.
    """

    def walk(old: Any, new: Any, name: str) -> Any:
        if isinstance(new, dict):
            return {key: walk(old.get(key) if isinstance(old, dict) else None, item, key) for key, item in new.items()}
        if isinstance(new, list):
            if name in _SHARED_LISTS and isinstance(old, list) and not list(_compare(old, new, (name,))):
                return old
            return [walk(item_with(old, _keys_of(item)) if _keys_of(item) else None, item, "") for item in new]
        return new

    adopted: Object = walk(live, wanted, "")
    return adopted


def _compare(live: Any, wanted: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any, Any]]:
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            if (*path, key) == ("metadata", "namespace"):  # it was asked for there
                continue
            yield from _compare(live.get(key, _ABSENT), value, (*path, key))
    elif isinstance(wanted, list) and isinstance(live, list):
        yield from _compare_lists(live, wanted, path)
    elif not _is_same(live, wanted, path):
        yield path, live, wanted


def _compare_lists(live: list[Any], wanted: list[Any], path: FieldPath) -> Iterator[tuple[FieldPath, Any, Any]]:
    if wanted and all(_keys_of(item) for item in wanted):
        for item in wanted:
            keys = _keys_of(item)
            match = item_with(live, keys)
            yield from _compare(_ABSENT if match is None else match, item, (*path, tuple(keys.items())))
    elif path and path[-1] in _SHARED_LISTS:
        for index, item in enumerate(wanted):
            if not any(not list(_compare(other, item, ())) for other in live):
                yield (*path, index), _ABSENT, item
    elif len(live) != len(wanted) or not all(isinstance(item, dict) for item in [*live, *wanted]):
        if live != wanted:
            yield path, live, wanted
    else:
        for index, (old, new) in enumerate(zip(live, wanted, strict=True)):
            yield from _compare(old, new, (*path, index))


def _keys_of(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        return {}
    key = next((key for key in _ITEM_KEYS if key in item), None)
    return {key: item[key]} if key else {}


def _is_same(live: Any, wanted: Any, path: FieldPath) -> bool:
    if live is _ABSENT:
        return wanted in ({}, [])
    if type(live) is type(wanted) and live == wanted:
        return True
    names = [step for step in path[-2:] if isinstance(step, str)]
    if any(name in _QUANTITY_PARENTS for name in names):
        numbers = _quantity(live), _quantity(wanted)
        return None not in numbers and numbers[0] == numbers[1]
    return False


def _quantity(value: Any) -> Decimal | None:
    text = str(value)
    number = text.rstrip("kMGTPEim")
    try:
        return Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return None


def _at(obj: Any, path: FieldPath) -> Any:
    for step in path:
        obj = item_with(obj, dict(step)) if isinstance(step, tuple) else dig(obj, step)
    return obj


def _masked_at(path: FieldPath, value: Any) -> Any:
    """Mask a value by where it stands: ``env[name=HF_TOKEN].value`` alone does not show that it is a secret."""
    pair = next((step for step in reversed(path) if isinstance(step, tuple)), None)
    if pair is not None and path[-1] == "value" and isinstance(value, str):
        return mask_object({**dict(pair), "value": value})["value"]
    masked = mask_object({str(path[-1]): value})
    return masked[str(path[-1])]


def _short(value: Any, limit: int = 60) -> str:
    if value == MASK:
        return MASK
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def live_view(live: Object, wanted: Object) -> Object:
    """Return the part of a live object that is compared: the fields of ``wanted``, and those we own and drop."""

    def walk(old: Any, new: Any, path: FieldPath) -> Any:
        if isinstance(new, dict) and isinstance(old, dict):
            return {key: walk(old[key], new[key], (*path, key)) for key in new if key in old}
        if isinstance(new, list) and isinstance(old, list) and new and all(_keys_of(item) for item in new):
            pairs = [(item_with(old, _keys_of(item)), item) for item in new]
            return [walk(match, item, path) for match, item in pairs if match is not None]
        return new if not list(_compare(old, new, path)) else old

    view: Object = walk(live, wanted, ())
    if "namespace" in dig(wanted, "metadata", default={}):
        view["metadata"]["namespace"] = wanted["metadata"]["namespace"]
    for path in removed_fields(applied_fields(live), live, wanted):
        _put(view, path, _at(live, path))
    return view


def _put(view: Any, path: FieldPath, value: Any) -> None:
    for step in path[:-1]:
        view = item_with(view, dict(step)) if isinstance(step, tuple) else view.setdefault(step, {})
        if view is None:
            return
    if isinstance(view, list):
        view.append(value)
    elif isinstance(view, dict):
        view[path[-1]] = value


def unified(live: Object | None, wanted: Object, live_name: str, wanted_name: str) -> str:
    """Return a unified diff of the compared fields as YAML, secrets masked; empty if nothing differs."""
    old = _to_yaml(live_view(live, wanted)) if live is not None else ""
    new = _to_yaml(wanted)
    if live is not None and not differences(live, wanted):
        return ""
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), live_name, wanted_name)
    shown = "".join(lines)
    if not shown:  # what differs is a secret, and masked on both sides
        shown = f"--- {live_name}\n+++ {wanted_name}\n" + "".join(
            f"~ {difference.describe()}\n" for difference in (differences(live, wanted) if live else ())
        )
    return shown


def _to_yaml(obj: Mapping[str, Any]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: readable(item) for key, item in value.items()}
        if isinstance(value, list):
            return [readable(item) for item in value]
        return LiteralScalarString(value) if isinstance(value, str) and "\n" in value.strip("\n") else value

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    buffer = io.StringIO()
    yaml.dump(readable(mask_object(dict(obj))), buffer)
    return buffer.getvalue()
