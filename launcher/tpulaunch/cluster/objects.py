"""Reading of Kubernetes objects as plain dicts: metadata, owners, times, and the marks JobSet puts on its children."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"
LABEL_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
LABEL_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
LABEL_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
LABEL_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
LABEL_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_NODE_POOL = "cloud.google.com/gke-nodepool"
LABEL_ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
LABEL_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPU_RESOURCE = "google.com/tpu"

#: Value of LABEL_MANAGED_BY and name of the field manager: how an object of ours is told from others'.
MANAGER = "tpulaunch"


def dig(value: Any, *path: str | int, default: Any = None) -> Any:
    """Return what stands at a path of keys and list indices, or ``default`` where any part is absent or null."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
            value = value[part]
        else:
            return default
        if value is None:
            return default
    return value


def name_of(obj: Object) -> str:
    """Return ``metadata.name``."""
    return str(dig(obj, "metadata", "name", default=""))


def uid_of(obj: Object) -> str:
    """Return ``metadata.uid``."""
    return str(dig(obj, "metadata", "uid", default=""))


def label_of(obj: Object, key: str) -> str | None:
    """Return the value of a label, or None."""
    value = dig(obj, "metadata", "labels", key)
    return None if value is None else str(value)


def index_of(obj: Object, key: str) -> int | None:
    """Return a label's value as a number, or None if it is absent or no number."""
    value = label_of(obj, key)
    return int(value) if value is not None and value.isdecimal() else None


def is_deleting(obj: Object) -> bool:
    """Say whether the object is on its way out."""
    return dig(obj, "metadata", "deletionTimestamp") is not None


def owned_by(obj: Object, owner_uid: str) -> bool:
    """Say whether one of the owner references names this UID."""
    return any(ref.get("uid") == owner_uid for ref in dig(obj, "metadata", "ownerReferences", default=[]))


def is_ours(obj: Object) -> bool:
    """Say whether tpulaunch made an object: it carries our label, or our field manager applied it."""
    if label_of(obj, LABEL_MANAGED_BY) == MANAGER:
        return True
    entries = dig(obj, "metadata", "managedFields", default=[])
    return any(entry.get("manager") == MANAGER and entry.get("operation") == "Apply" for entry in entries)


def parse_time(text: Any) -> datetime | None:
    """Return an RFC 3339 time with up to nanoseconds (cut to microseconds), or None."""
    if not isinstance(text, str) or not text:
        return None
    head, dot, tail = text.rstrip("Z").partition(".")
    digits = "".join(c for c in tail if c.isdecimal()) if dot else ""
    try:
        if dot and not tail.isdecimal():  # an offset follows the fraction
            return datetime.fromisoformat(text)
        moment = datetime.fromisoformat(head)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.replace(microsecond=int(digits[:6].ljust(6, "0"))) if digits else moment


def created_at(obj: Object) -> datetime | None:
    """Return ``metadata.creationTimestamp``."""
    return parse_time(dig(obj, "metadata", "creationTimestamp"))


@dataclass(frozen=True)
class Event:
    """One event, whichever of the two event APIs wrote it.

    Attributes:
        kind: Kind of the object it is about.
        name: Name of that object.
        uid: UID of that object.
        reason: One word.
        message: The controller's own words.
        is_warning: Whether its type is Warning.
        last_seen: When it was last seen.
        source: Component that reported it.
    """

    kind: str
    name: str
    uid: str
    reason: str
    message: str
    is_warning: bool
    last_seen: datetime
    source: str


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def read_event(obj: Object) -> Event:
    """Return the event an Event object describes."""
    seen = (
        dig(obj, "series", "lastObservedTime"),
        dig(obj, "lastTimestamp"),
        dig(obj, "eventTime"),
        dig(obj, "metadata", "creationTimestamp"),
    )
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return Event(
        kind=str(about.get("kind", "")),
        name=str(about.get("name", "")),
        uid=str(about.get("uid", "")),
        reason=str(obj.get("reason") or ""),
        message=str(obj.get("message") or obj.get("note") or ""),
        is_warning=obj.get("type") == "Warning",
        last_seen=next((moment for text in seen if (moment := parse_time(text))), _LONG_AGO),
        source=str(dig(obj, "source", "component") or obj.get("reportingComponent") or ""),
    )


def newest(events: Iterable[Event]) -> Event | None:
    """Return the event that was seen last."""
    return max(events, key=lambda event: event.last_seen, default=None)
