"""One cause and one remedy for whatever does not run, joined over Workload, JobSet, Jobs, pods, nodes and events."""

from __future__ import annotations

from tpulaunch.cluster.conditions import Phase, phase_of
from tpulaunch.cluster.explain.cause import Cause, about, events_about, first_line
from tpulaunch.cluster.explain.failure import explain_failure
from tpulaunch.cluster.explain.placement import explain_creation, explain_placement
from tpulaunch.cluster.explain.queue import explain_queue
from tpulaunch.cluster.explain.start import explain_nodes, explain_start
from tpulaunch.cluster.objects import created_at, dig, name_of
from tpulaunch.cluster.state import Observation

#: A controller that has not acted on a new JobSet for so long is not running.
_ACTS_WITHIN_SECONDS = 30

__all__ = ["Cause", "explain"]


def explain(observed: Observation) -> Cause | None:
    """Return why a job does not run, or why it failed; None for one that runs, or has run, as it should.

    The chain is walked from the first thing that must happen to the last, so the cause is the earliest obstacle: queue,
    creation of Jobs and pods, failures of the present attempt, placement, start, nodes.
    """
    phase = phase_of(observed.jobset)
    match phase:
        case Phase.COMPLETED:
            return None
        case Phase.FAILED:
            return explain_failure(observed)
        case Phase.DELETING:
            return _deleting(observed)
        case Phase.QUEUED | Phase.SUSPENDED:
            return explain_queue(observed)
    return (
        explain_creation(observed)
        or explain_nodes(observed)
        or explain_failure(observed)
        or explain_placement(observed)
        or explain_start(observed)
        or (None if phase is Phase.RUNNING else _idle(observed) or _restarting(observed) or _starting(observed))
    )


def _deleting(observed: Observation) -> Cause:
    held = dig(observed.jobset, "metadata", "finalizers", default=[])
    return Cause(
        "deleting",
        "the job is being deleted" + (f"; it waits for {', '.join(held)}" if held else ""),
        "wait: its pods have their grace to end",
        about(observed.jobset),
        is_fault=False,
    )


def _idle(observed: Observation) -> Cause | None:
    created = created_at(observed.jobset)
    if observed.jobs or dig(observed.jobset, "status", "replicatedJobsStatus") or created is None:
        return None
    if observed.now is None or (observed.now - created).total_seconds() < _ACTS_WITHIN_SECONDS:
        return None
    return Cause(
        "controller-absent",
        "nothing has acted on the JobSet since it was made",
        "look whether the JobSet controller runs: kubectl -n jobset-system get pods",
        about(observed.jobset),
    )


def _restarting(observed: Observation) -> Cause | None:
    restarts = int(dig(observed.jobset, "status", "restarts", default=0))
    if not restarts:
        return None
    events = events_about(observed, observed.jobset, "Restarting", "RestartJobSetFailurePolicyAction")
    counted = int(dig(observed.jobset, "status", "restartsCountTowardsMax", default=0))
    limit = dig(observed.jobset, "spec", "failurePolicy", "maxRestarts", default=0)
    return Cause(
        "restarting",
        f"attempt {restarts} is starting; {counted} of {limit} restarts that count are used up",
        f"wait; the attempt before is in tpulaunch logs {name_of(observed.jobset)} only if it was followed",
        about(observed.jobset),
        first_line(events[-1].message) if events else "",
        is_fault=False,
    )


def _starting(observed: Observation) -> Cause | None:
    if not observed.pods:
        return Cause("starting", "its pods are being made", "wait", about(observed.jobset), is_fault=False)
    return Cause(
        "starting",
        "its pods are starting: images are pulled, hosts look for each other",
        "wait",
        about(observed.jobset),
        is_fault=False,
    )
