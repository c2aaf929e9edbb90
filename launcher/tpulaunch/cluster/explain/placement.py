"""Why pods are not made or find no node: refusals of the API server, and selectors, taints and chips against nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpulaunch.cluster.conditions import HostPhase, condition_of, host_phase_of, is_ready_node
from tpulaunch.cluster.explain.cause import (
    Cause,
    about,
    claim_missing,
    counted,
    events_about,
    first_line,
    selector_of,
    several,
    tolerates,
)
from tpulaunch.cluster.objects import (
    LABEL_ACCELERATOR,
    LABEL_COMPLETION_INDEX,
    LABEL_NODE_POOL,
    LABEL_TOPOLOGY,
    TPU_RESOURCE,
    Event,
    Object,
    dig,
    index_of,
    label_of,
    name_of,
)
from tpulaunch.cluster.state import Observation, place_of

_SERVICE_ACCOUNT = re.compile(r"error looking up service account ([^/]+)/([^:]+):")
_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: ([^,]+(?:,[^,:]+=[^,]+)*), used: .*?, limited: (.*)")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'.*denied request: (.*)", re.DOTALL)
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]+)": (.*)', re.DOTALL)
_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")
#: JobSet refuses the other pods of a slice until its first one has a node; the words differ between versions.
_FOLLOWER = "follower pod node selector"
_INSUFFICIENT = re.compile(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)")


def explain_creation(observed: Observation) -> Cause | None:
    """Return why the JobSet has no Jobs, or a Job has no pods."""
    for obj in (observed.jobset, *observed.jobs):
        reasons = ("FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "ExclusivePlacementViolation")
        events = [event for event in events_about(observed, obj, *reasons) if _FOLLOWER not in event.message]
        if events and _is_short_of_children(observed, obj):
            return _refused(observed, obj, events[-1])
    return None


def _is_short_of_children(observed: Observation, obj: Object) -> bool:
    if obj is observed.jobset:
        wanted = sum(int(job.get("replicas", 1)) for job in dig(obj, "spec", "replicatedJobs", default=[]))
        return len(observed.jobs) < wanted
    active = sum(int(dig(obj, "status", key, default=0)) for key in ("active", "succeeded", "failed"))
    return active < int(dig(obj, "spec", "parallelism", default=1))


def _refused(observed: Observation, obj: Object, event: Event) -> Cause:
    words, evidence = event.message, first_line(event.message)
    namespace = dig(observed.jobset, "metadata", "namespace")
    if found := _SERVICE_ACCOUNT.search(words):
        return Cause(
            "service-account-missing",
            f"the service account {found[2]!r} does not exist in namespace {namespace!r}",
            f"create it (kubectl -n {namespace} create serviceaccount {found[2]}), or mend spec.worker.service_account",
            about(obj),
            evidence,
        )
    if found := _PRIORITY.search(words):
        return Cause(
            "priority-class-missing",
            f"the PriorityClass {found[1]!r} does not exist",
            "set spec.schedule.priority_class to one that exists: kubectl get priorityclass",
            about(obj),
            evidence,
        )
    if found := _QUOTA.search(words):
        return Cause(
            "resource-quota",
            f"the ResourceQuota {found[1]!r} is used up: asked for {found[2]}, limit {found[3].strip()}",
            "end other jobs of the namespace, ask for less, or have the quota raised",
            about(obj),
            evidence,
        )
    if found := _POD_SECURITY.search(words):
        return Cause(
            "pod-security",
            f"the namespace enforces PodSecurity {found[1]!r}, which the pods violate: {first_line(found[2])}",
            "drop what it forbids (privileged, host_network, volumes), or use another namespace",
            about(obj),
            evidence,
        )
    if found := _WEBHOOK.search(words) or _POLICY.search(words):
        return Cause(
            "pod-refused",
            f"the cluster's policy {found[1]!r} refuses the pods: {first_line(found[2])}",
            "change what it names, or ask those who set the policy",
            about(obj),
            evidence,
        )
    return Cause(
        "creation-failed",
        f"{about(obj)} cannot make its {'Jobs' if obj is observed.jobset else 'pods'}: {event.reason}",
        "change what the message names; tpulaunch submit --dry-run=server shows most of these beforehand",
        about(obj),
        evidence,
    )


def explain_placement(observed: Observation) -> Cause | None:
    """Return why a pod finds no node. Leaders come first: the followers of a slice wait for theirs."""
    waiting = [pod for pod in observed.pods if host_phase_of(pod) is HostPhase.UNSCHEDULABLE]
    waiting.sort(key=lambda pod: (index_of(pod, LABEL_COMPLETION_INDEX) or 0, place_of(pod) or (0, 0)))
    if not waiting:
        return None
    pod = waiting[0]
    scheduled = condition_of(pod, "PodScheduled")
    words = scheduled.message if scheduled else ""
    if cause := claim_missing(observed, pod, words) or _scale_up(observed, pod, words):
        return cause
    if observed.nodes is not None:
        return _against_nodes(observed, pod, words, len(waiting))
    return Cause(
        "unschedulable",
        f"no node fits {counted(len(waiting), 'host')}",
        "compare the job's slice with the node pools: tpulaunch doctor (nodes cannot be read with these rights)",
        about(pod),
        _without_preemption(words),
    )


def _scale_up(observed: Observation, pod: Object, words: str) -> Cause | None:
    events = events_about(observed, pod, "TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp")
    last = events[-1] if events else None
    if last is None or last.reason == "NotTriggerScaleUp":
        return None
    if last.reason == "FailedScaleUp":
        return Cause(
            "scale-up-failed",
            "the cluster tried to add nodes and got none: the zone has no capacity or the project no quota",
            "wait, or use another zone, capacity (spot, reservation, flex-start) or generation",
            about(pod),
            first_line(last.message),
        )
    return Cause(
        "scale-up",
        "nodes are being added for the job",
        "wait: a slice takes some minutes to come up",
        about(pod),
        first_line(last.message) or _without_preemption(words),
        is_fault=False,
    )


def _against_nodes(observed: Observation, pod: Object, words: str, num_waiting: int) -> Cause:
    nodes = observed.nodes or ()
    selector = selector_of(pod)
    fitting = [node for node in nodes if _matches(node, selector)]
    if not fitting:
        return _no_such_node(observed, pod, words, nodes, selector)
    evidence = _without_preemption(words)
    usable = [node for node in fitting if not _obstacle(node, pod)]
    if not usable:
        obstacles = several(f"{name_of(node)}: {_obstacle(node, pod)}" for node in fitting)
        return Cause(
            "nodes-closed",
            f"every node of the right kind is closed to the job ({obstacles})",
            "wait for the nodes to return, or ask an administrator to uncordon them",
            about(pod),
            evidence,
        )
    if "anti-affinity" in words:
        return _no_free_pool(pod, words, usable)
    return _too_little(pod, words, usable, num_waiting)


def _no_free_pool(pod: Object, words: str, usable: Sequence[Object]) -> Cause:
    """A slice of several hosts takes a node pool for itself; the pools it could have are other slices' or in use."""
    pools = {label_of(node, LABEL_NODE_POOL) or name_of(node) for node in usable}
    slice_index = (place_of(pod) or (0, 0))[0]
    return Cause(
        "no-free-pool",
        f"slice {slice_index} finds no node pool of its own: {counted(len(pools), 'pool')} of the right kind "
        f"({several(pools)}), each taken by another slice or without free chips",
        "lower spec.slice.count, wait for other jobs to end, or add a node pool for each slice",
        about(pod),
        _without_preemption(words),
    )


def _too_little(pod: Object, words: str, usable: Sequence[Object], num_waiting: int) -> Cause:
    evidence = _without_preemption(words)
    short = _INSUFFICIENT.search(words)
    resource = TPU_RESOURCE if f"Insufficient {TPU_RESOURCE}" in words else short[1] if short else ""
    if not resource:
        return Cause(
            "unschedulable",
            f"no node fits {counted(num_waiting, 'host')}",
            "see the scheduler's words",
            about(pod),
            evidence,
        )
    asked = _request(pod, resource)
    offers = {str(dig(node, "status", "allocatable", resource, default="0")) for node in usable}
    if (
        resource == TPU_RESOURCE
        and asked.isdecimal()
        and not any(o.isdecimal() and int(o) >= int(asked) for o in offers)
    ):
        return Cause(
            "too-few-chips",
            f"each host asks for {asked} chips; the matching nodes offer {several(offers)}",
            "mend spec.slice (machine), or look at the nodes' device plugin: a node shows no chips until it runs",
            about(pod),
            evidence,
        )
    thing = "chips" if resource == TPU_RESOURCE else resource
    return Cause(
        "nodes-busy" if resource == TPU_RESOURCE else "too-little-" + resource.rpartition("/")[2],
        f"{counted(num_waiting, 'host')} wait for {asked} {thing} each; {counted(len(usable), 'node')} of the "
        f"right kind {'are' if len(usable) != 1 else 'is'} up, none with so much free",
        "wait for other jobs to end, or add nodes"
        if resource == TPU_RESOURCE
        else f"lower what the worker requests of {thing}, or end what else runs on these nodes",
        about(pod),
        evidence,
        is_fault=resource != TPU_RESOURCE,
    )


def _no_such_node(
    observed: Observation, pod: Object, words: str, nodes: Sequence[Object], selector: dict[str, str]
) -> Cause:
    missed = events_about(observed, pod, "NotTriggerScaleUp")
    evidence = first_line(missed[-1].message) if missed else _without_preemption(words)
    alike = [node for node in nodes if label_of(node, LABEL_ACCELERATOR) == selector.get(LABEL_ACCELERATOR)]
    same = [node for node in alike if label_of(node, LABEL_TOPOLOGY) == selector.get(LABEL_TOPOLOGY)]
    accelerator, topology = selector.get(LABEL_ACCELERATOR, ""), selector.get(LABEL_TOPOLOGY, "")
    if not alike:
        offered = several(value for node in nodes if (value := label_of(node, LABEL_ACCELERATOR)))
        cause = f"no node has {LABEL_ACCELERATOR}={accelerator}; the cluster has {offered or 'no TPU node at all'}"
    elif not same:
        offered = several(value for node in alike if (value := label_of(node, LABEL_TOPOLOGY)))
        cause = f"no node of {accelerator} has topology {topology}; there are {offered or 'none with a topology'}"
    else:
        unmet = several(
            f"{key}={value}"
            for key, value in selector.items()
            if not any(label_of(node, key) == value for node in same)
        )
        unmet = unmet or "the combination of " + several(f"{key}={value}" for key, value in selector.items())
        cause = f"no {accelerator} {topology} node has {unmet}"
    return Cause(
        "no-such-node",
        cause,
        "create a node pool of this generation, topology and capacity, or change spec.slice or spec.schedule.capacity "
        "(tpulaunch doctor lists what is on offer)",
        about(pod),
        evidence,
    )


def _matches(node: Object, selector: dict[str, str]) -> bool:
    return all(label_of(node, key) == value for key, value in selector.items())


def _obstacle(node: Object, pod: Object) -> str:
    if dig(node, "spec", "unschedulable") is True:
        return "cordoned"
    if not is_ready_node(node):
        return "not ready"
    for taint in dig(node, "spec", "taints", default=[]):
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(pod, taint):
            return f"taint {taint.get('key')}"
    return ""


def _request(pod: Object, resource: str) -> str:
    for container in dig(pod, "spec", "containers", default=[]):
        for kind in ("requests", "limits"):
            value = dig(container, "resources", kind, resource)
            if value is not None:
                return str(value)
    return "some"


def _without_preemption(words: str) -> str:
    return first_line(words.partition(" preemption:")[0])
