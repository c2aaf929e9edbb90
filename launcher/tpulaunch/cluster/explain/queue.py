"""Why a suspended job waits: Kueue's queue, quota, flavors, checks and evictions."""

from __future__ import annotations

import re

from tpulaunch.cluster.conditions import Condition, condition_of, holds
from tpulaunch.cluster.explain.cause import Cause, about, first_line, several
from tpulaunch.cluster.objects import LABEL_QUEUE, dig, label_of, name_of
from tpulaunch.cluster.state import Observation

_INSUFFICIENT = re.compile(r"insufficient (unused )?quota for (\S+) in flavor ([^\s,]+)(.*)")
_MORE_NEEDED = re.compile(r"(\S+) more needed")
_MAXIMUM = re.compile(r"\+ current podset request \(([^)]+)\) > (?:maximum capacity|nominal quota)[^(]*\(([^)]+)\)")
_NOT_COVERED = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_TAINT = re.compile(r"untolerated taint \{?([^}]+)\}? in flavor (\S+)")
_AFFINITY = re.compile(r"flavor (\S+?)(?: or its resource)? doesn't match (?:node )?affinity")


def explain_queue(observed: Observation) -> Cause | None:
    """Return why a job with ``spec.suspend: true`` does not start."""
    jobset = observed.jobset
    queue = label_of(jobset, LABEL_QUEUE)
    if queue is None:
        return Cause(
            "suspended",
            "the job is suspended and has no queue that would resume it",
            f'resume it: kubectl patch jobset {name_of(jobset)} --type=merge -p \'{{"spec":{{"suspend":false}}}}\'',
            about(jobset),
        )
    local = {name_of(found): found for found in observed.local_queues or ()}
    if observed.local_queues is not None and queue not in local:
        return Cause(
            "queue-missing",
            f"the queue {queue!r} does not exist in namespace {dig(jobset, 'metadata', 'namespace')!r}",
            f"set spec.schedule.queue to one of: {several(local)}"
            if local
            else "ask an administrator for a LocalQueue in this namespace (there is none), or leave the queue out",
            about(jobset),
        )
    if observed.workload is None:
        return Cause(
            "no-workload",
            "Kueue has made no Workload for this job",
            "look whether Kueue runs and manages JobSets: kubectl -n kueue-system get pods; tpulaunch doctor",
            about(jobset),
        )
    return _inactive_queue(observed, queue) or _workload(observed, queue)


def _inactive_queue(observed: Observation, queue: str) -> Cause | None:
    local = next((found for found in observed.local_queues or () if name_of(found) == queue), None)
    for obj in (observed.cluster_queue, local):
        active = condition_of(obj, "Active") if obj else None
        if obj and active and active.status == "False":
            return Cause(
                "queue-inactive",
                f"{about(obj)} takes no jobs: {active.reason}",
                "ask an administrator to mend the queue, or choose another: tpulaunch doctor lists them",
                about(obj),
                first_line(active.message),
            )
    return None


def _workload(observed: Observation, queue: str) -> Cause | None:
    workload = observed.workload or {}
    if dig(workload, "spec", "active") is False:
        evicted = condition_of(workload, "Evicted")
        return Cause(
            "deactivated",
            "Kueue has deactivated the job; it will not be tried again by itself",
            f'activate it: kubectl patch workload {name_of(workload)} --type=merge -p \'{{"spec":{{"active":true}}}}\'',
            about(workload),
            first_line(evicted.message) if evicted else "",
        )
    checks = [
        check for check in dig(workload, "status", "admissionChecks", default=[]) if check.get("state") != "Ready"
    ]
    if holds(workload, "QuotaReserved") and checks:
        check = checks[0]
        is_refused = check.get("state") == "Rejected"
        return Cause(
            "admission-check",
            f"quota is reserved; the admission check {check.get('name')!r} is {str(check.get('state')).lower()}",
            "ask an administrator about the check" if is_refused else "wait: capacity is being provisioned",
            about(workload),
            first_line(str(check.get("message") or "")),
            is_fault=is_refused,
        )
    if holds(workload, "Admitted"):
        return Cause(
            "admitted",
            "Kueue has admitted the job and is about to resume it",
            "wait; if it stays like this, look at the log of Kueue's controller",
            about(workload),
            is_fault=False,
        )
    reserved = condition_of(workload, "QuotaReserved")
    evicted = condition_of(workload, "Evicted")
    is_short = bool(reserved and _INSUFFICIENT.search(reserved.message))
    if evicted and evicted.is_true and (evicted.reason == "Preempted" or not is_short):
        return _evicted(observed, evicted, queue)
    return _no_quota(observed, reserved, queue)


def _evicted(observed: Observation, evicted: Condition, queue: str) -> Cause:
    words = {
        "Preempted": "was preempted by another job",
        "PodsReadyTimeout": "was evicted because its pods were not ready in time",
        "ClusterQueueStopped": "was evicted because its queue was stopped",
        "LocalQueueStopped": "was evicted because its queue was stopped",
        "AdmissionCheck": "was evicted because an admission check was taken back",
        "NodeFailures": "was evicted because a node failed",
    }
    return Cause(
        "evicted",
        f"the job {words.get(evicted.reason, f'was evicted by Kueue ({evicted.reason})')} and waits in queue {queue!r}",
        "wait for its turn, or give it a higher spec.schedule.priority",
        about(observed.workload or {}),
        first_line(evicted.message),
        is_fault=False,
    )


def _no_quota(observed: Observation, reserved: Condition | None, queue: str) -> Cause:
    workload = observed.workload or {}
    words = reserved.message if reserved else ""
    where = f"queue {queue!r}"
    evidence = first_line(words)
    if found := _INSUFFICIENT.search(words):
        resource, flavor, rest = found[2], found[3].rstrip("."), found[4]
        if bound := _MAXIMUM.search(rest):
            return Cause(
                "quota-too-small",
                f"the job asks for {bound[1]} {resource}; {where} has at most {bound[2]} (flavor {flavor})",
                "ask for fewer slices or a smaller topology, or have the quota raised",
                about(workload),
                evidence,
            )
        more = _MORE_NEEDED.search(rest)
        missing = f"{more[1]} more {resource}" if more else f"more {resource}"
        return Cause(
            "quota-short",
            f"{where} has too little unused quota: {missing} needed in flavor {flavor}",
            "wait for other jobs of the queue to end, or ask for fewer slices",
            about(workload),
            evidence,
            is_fault=False,
        )
    if found := _NOT_COVERED.search(words):
        return Cause(
            "quota-not-covered",
            f"{where} has no quota for {found[1]}, which the pods request",
            "have the ClusterQueue cover it, or set Kueue's quotaCheckStrategy: IgnoreUndeclared",
            about(workload),
            evidence,
        )
    if _TAINT.search(words) or _AFFINITY.search(words):
        return Cause(
            "flavor-mismatch",
            f"no flavor of {where} fits the job's node selector and tolerations",
            "choose a generation, topology and capacity that the queue's flavors offer: tpulaunch doctor lists them",
            about(workload),
            evidence,
        )
    if "inactive" in words or "doesn't exist" in words:
        return Cause(
            "queue-inactive",
            f"{where} takes no jobs",
            "ask an administrator to mend the queue, or choose another: tpulaunch doctor lists them",
            about(workload),
            evidence,
        )
    return Cause(
        "queued",
        f"the job waits in {where}" + ("" if words else "; Kueue has not looked at it yet"),
        "wait for its turn",
        about(workload),
        evidence,
        is_fault=False,
    )
