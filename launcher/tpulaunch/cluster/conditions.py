"""Conditions of JobSets, Workloads, Jobs, pods and nodes, read by type and truth; never by their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tpulaunch.cluster.objects import LABEL_QUEUE, Object, dig, is_deleting, label_of, parse_time


@dataclass(frozen=True)
class Condition:
    """One condition of an object.

    Attributes:
        type: What it is about.
        status: "True", "False" or "Unknown".
        reason: One word.
        message: The controller's own words.
        since: When the status last changed.
    """

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None

    @property
    def is_true(self) -> bool:
        """Whether the condition holds."""
        return self.status == "True"


class Phase(StrEnum):
    """What a job is doing, in one word."""

    QUEUED = "Queued"
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETED = "Completed"
    FAILED = "Failed"
    DELETING = "Deleting"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will change any more."""
        return self in (Phase.COMPLETED, Phase.FAILED)


class HostPhase(StrEnum):
    """What a host's pod is doing, in one word."""

    ABSENT = "NoPod"
    UNSCHEDULABLE = "Unschedulable"
    PENDING = "Pending"
    BLOCKED = "Blocked"
    STARTED = "Started"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    LOST = "Lost"
    ENDING = "Ending"


def conditions_of(obj: Object) -> Iterator[Condition]:
    """Yield the conditions of an object's status."""
    for entry in dig(obj, "status", "conditions", default=[]):
        yield Condition(
            type=str(entry.get("type", "")),
            status=str(entry.get("status", "Unknown")),
            reason=str(entry.get("reason") or ""),
            message=str(entry.get("message") or ""),
            since=parse_time(entry.get("lastTransitionTime")),
        )


def condition_of(obj: Object, kind: str) -> Condition | None:
    """Return the condition of one type, whatever its status, or None."""
    return next((condition for condition in conditions_of(obj) if condition.type == kind), None)


def holds(obj: Object, kind: str) -> bool:
    """Say whether a condition is there and True. An absent or Unknown one does not hold."""
    condition = condition_of(obj, kind)
    return condition is not None and condition.is_true


def terminal_condition(obj: Object) -> Condition | None:
    """Return the condition that ended a JobSet (``Completed``, ``Failed``) or a Job (``Complete``, ``Failed``)."""
    ends = ("Failed", "Completed", "Complete")
    return next((condition for end in ends if (condition := condition_of(obj, end)) and condition.is_true), None)


def phase_of(jobset: Object) -> Phase:
    """Return what a JobSet is doing.

    Ends are read from the conditions and from ``status.terminalState``, which say the same. Readiness is counted from
    ``replicatedJobsStatus``, since no condition says it (a resumed job keeps its ``Suspended`` condition, as False).
    """
    end = terminal_condition(jobset)
    terminal_state = dig(jobset, "status", "terminalState")
    if (end and end.type == "Failed") or terminal_state == "Failed":
        return Phase.FAILED
    if end or terminal_state == "Completed":
        return Phase.COMPLETED
    if is_deleting(jobset):
        return Phase.DELETING
    if dig(jobset, "spec", "suspend") is True:  # the condition follows the field after a moment
        return Phase.QUEUED if label_of(jobset, LABEL_QUEUE) else Phase.SUSPENDED
    if holds(jobset, "RestartingJobSet"):
        return Phase.RESTARTING
    ready, total = ready_slices(jobset)
    return Phase.RUNNING if total and ready == total else Phase.STARTING


def ready_slices(jobset: Object) -> tuple[int, int]:
    """Return how many slices are ready or done, and how many there are to be."""
    total = sum(int(job.get("replicas", 1)) for job in dig(jobset, "spec", "replicatedJobs", default=[]))
    ready = sum(
        int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
        for status in dig(jobset, "status", "replicatedJobsStatus", default=[])
    )
    return min(ready, total), total


def waiting_reason(pod: Object) -> tuple[str, str] | None:
    """Return (reason, message) of the first container, init containers first, that is kept from running by a fault."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in dig(pod, "status", kind, default=[]):
            waiting = dig(status, "state", "waiting")
            if waiting and waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
                return str(waiting["reason"]), str(waiting.get("message") or "")
    return None


def host_phase_of(pod: Object | None) -> HostPhase:
    """Return what one host's pod is doing."""
    if pod is None:
        return HostPhase.ABSENT
    phase = dig(pod, "status", "phase", default="Pending")
    match phase:
        case "Succeeded":
            return HostPhase.SUCCEEDED
        case "Failed":
            return HostPhase.FAILED
    if is_deleting(pod):
        return HostPhase.ENDING
    if phase == "Unknown" or dig(pod, "status", "reason") == "NodeLost":
        return HostPhase.LOST
    if phase == "Running":
        return HostPhase.READY if holds(pod, "Ready") else HostPhase.STARTED
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        return HostPhase.UNSCHEDULABLE
    return HostPhase.BLOCKED if waiting_reason(pod) else HostPhase.PENDING


def is_ready_node(node: Object) -> bool:
    """Say whether a node is ready; Unknown means that its kubelet has gone silent."""
    return holds(node, "Ready")
