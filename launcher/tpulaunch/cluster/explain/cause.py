"""A cause with its remedy, and the words shared by those that find one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpulaunch.cluster.objects import Event, Object, dig, name_of, uid_of
from tpulaunch.cluster.state import Observation

_CLAIM = re.compile(r'persistentvolumeclaims? "([^"]+)" not found')


@dataclass(frozen=True)
class Cause:
    """Why a job does not run (or ended), and what to do: one of each.

    Attributes:
        code: The kind of cause as one word, stable for scripts: ``queue-missing``, ``image-pull``, ...
        cause: What is wrong, in one sentence, with names and values.
        remedy: What to do next.
        about: The object that shows it, ``Pod tiny-slice-0-1-x7x2k``.
        evidence: The controller's own words.
        is_fault: False where waiting is all there is to do.
    """

    code: str
    cause: str
    remedy: str
    about: str = ""
    evidence: str = ""
    is_fault: bool = True


def about(obj: Object) -> str:
    """Return an object as people name it: kind and name."""
    return f"{obj.get('kind', 'object')} {name_of(obj)}"


def events_about(observed: Observation, obj: Object, *reasons: str) -> list[Event]:
    """Return the events of one object, by UID (or by name where the event has none), oldest first."""
    uid, name, kind = uid_of(obj), name_of(obj), obj.get("kind")
    found = [
        event
        for event in observed.events
        if (event.uid == uid if event.uid and uid else (event.kind, event.name) == (kind, name))
        and (not reasons or event.reason in reasons)
    ]
    return sorted(found, key=lambda event: event.last_seen)


def first_line(text: str, limit: int = 400) -> str:
    """Return the first line of a message, cut where it turns into a dump."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def several(names: Iterable[str], limit: int = 6) -> str:
    """Return distinct names as a list for people: ``a, b, c and 4 more``."""
    ordered = sorted(set(names))
    shown = ", ".join(ordered[:limit])
    return f"{shown} and {len(ordered) - limit} more" if len(ordered) > limit else shown


def counted(number: int, word: str) -> str:
    """Return ``1 host``, ``3 hosts``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def claim_missing(observed: Observation, pod: Object, words: str) -> Cause | None:
    """Return the cause where the scheduler or the kubelet misses a PersistentVolumeClaim."""
    found = _CLAIM.search(words)
    if not found:
        return None
    return Cause(
        "claim-missing",
        f"the PersistentVolumeClaim {found[1]!r} does not exist in namespace "
        f"{dig(observed.jobset, 'metadata', 'namespace')!r}",
        "create it, or mend spec.worker.volumes",
        about(pod),
        first_line(words),
    )


def selector_of(pod: Object) -> dict[str, str]:
    """Return the node selector of a pod."""
    found: dict[str, str] = dig(pod, "spec", "nodeSelector", default={})
    return found


def tolerates(pod: Object, taint: Object) -> bool:
    """Say whether one of a pod's tolerations covers a taint."""
    tolerations: Sequence[Object] = dig(pod, "spec", "tolerations", default=[])
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
