"""Is the cluster fit for jobs: versions, what is installed, rights, queues, and the slices on offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import condition_of, is_ready_node
from tpulaunch.cluster.errors import ApiError
from tpulaunch.cluster.kinds import (
    CLUSTER_QUEUE,
    CRD,
    DEPLOYMENT,
    EVENT,
    JOB,
    JOBSET,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    POD,
    WORKLOAD,
    Kind,
)
from tpulaunch.cluster.objects import (
    LABEL_ACCELERATOR,
    LABEL_NODE_POOL,
    LABEL_TOPOLOGY,
    TPU_RESOURCE,
    Object,
    dig,
    label_of,
    name_of,
)
from tpuworker.spec.tpu import GENERATIONS, SliceShape, format_topology

Verdict = Literal["ok", "warn", "fail"]
_CONTROLLERS = (("jobset", "the JobSet controller"), ("kueue", "Kueue's controller"))


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Attributes:
        subject: What was checked.
        verdict: ``fail``: jobs cannot run; ``warn``: some cannot, or it is not known; ``ok``.
        words: What was found.
        remedy: What to do about it; empty if nothing.
    """

    subject: str
    verdict: Verdict
    words: str
    remedy: str = ""


@dataclass(frozen=True)
class Offer:
    """Nodes of one kind.

    Attributes:
        generation: As ``spec.slice.generation`` spells it, or the raw label of an unknown one.
        topology: As ``spec.slice.topology`` spells it.
        chips_per_host: ``google.com/tpu`` of one node.
        num_slices: Slices whose every host is ready.
        num_nodes: Nodes, ready or not.
        pools: Names of the node pools.
        capacity: on-demand, spot, reservation, or flex-start.
    """

    generation: str
    topology: str
    chips_per_host: int
    num_slices: int
    num_nodes: int
    pools: tuple[str, ...]
    capacity: str


def examine(api: Api, namespace: str) -> Iterator[Finding]:
    """Yield a finding for everything a job needs, in the order in which it needs it."""
    version = api.get_path("/version")
    yield Finding("server", "ok", f"{api.where}: Kubernetes {version.get('gitVersion', 'of unknown version')}")
    yield from _namespace(api, namespace)
    yield from _installed(api)
    yield from _rights(api, namespace)
    yield from _queues(api, namespace)
    yield from _slices(api)


def _namespace(api: Api, namespace: str) -> Iterator[Finding]:
    try:
        found = api.get(NAMESPACE, None, namespace)
    except ApiError as error:
        yield Finding("namespace", "warn", f"{namespace}: {error.status.message}")
        return
    if found is None:
        remedy = f"create it (kubectl create namespace {namespace}), or choose another with -n"
        yield Finding("namespace", "fail", f"{namespace} does not exist", remedy)
    else:
        yield Finding("namespace", "ok", namespace)


def _installed(api: Api) -> Iterator[Finding]:
    for kind, is_needed, remedy in (
        (JOBSET, True, "install it: https://jobset.sigs.k8s.io/docs/installation/"),
        (WORKLOAD, False, "needed for spec.schedule.queue only: https://kueue.sigs.k8s.io/docs/installation/"),
    ):
        subject = "Kueue" if kind is WORKLOAD else kind.name
        version = api.version_of(kind)
        if version is None:
            yield Finding(subject, "fail" if is_needed else "warn", f"{kind.group} is not served", remedy)
            continue
        yield Finding(subject, "ok", f"{kind.group}/{version}{_release(api, kind)}")
    yield from _controllers(api)


def _release(api: Api, kind: Kind) -> str:
    """Return the release the CRD's labels or annotations tell, if they may be read."""
    try:
        crd = api.get(CRD, None, f"{kind.plural}.{kind.group}")
    except ApiError:
        return ""
    release = label_of(crd or {}, "app.kubernetes.io/version")
    return f" ({release})" if release else ""


def _controllers(api: Api) -> Iterator[Finding]:
    try:
        deployments = api.list_all(DEPLOYMENT)
    except ApiError:
        return
    for word, what in _CONTROLLERS:
        for deployment in deployments:
            if word not in name_of(deployment) or "controller" not in name_of(deployment):
                continue
            ready, wanted = (
                int(dig(deployment, *p, default=0)) for p in (("status", "readyReplicas"), ("spec", "replicas"))
            )
            place = f"{dig(deployment, 'metadata', 'namespace')}/{name_of(deployment)}: {ready} of {wanted} ready"
            image = str(dig(deployment, "spec", "template", "spec", "containers", 0, "image", default=""))
            tag = image.rpartition(":")[2] if ":" in image else ""
            verdict: Verdict = "ok" if ready else "fail"
            yield Finding(
                what, verdict, f"{place}{f', {tag}' if tag else ''}", "" if ready else "look at its pods and logs"
            )


def _rights(api: Api, namespace: str) -> Iterator[Finding]:
    wanted: tuple[tuple[str, Kind, str], ...] = (
        *(("submit, delete", JOBSET, verb) for verb in ("create", "get", "list", "watch", "patch", "delete")),
        *(("status, logs", POD, verb) for verb in ("get", "list", "watch")),
        ("logs", Kind("Pod", "pods/log"), "get"),
        *(("status", kind, "list") for kind in (JOB, EVENT, NODE)),
        *(("status of queued jobs", kind, "list") for kind in (WORKLOAD, LOCAL_QUEUE)),
    )
    missing: dict[str, list[str]] = {}
    for command, kind, verb in wanted:
        if kind.group == WORKLOAD.group and api.version_of(kind) is None:
            continue
        if not _may(api, kind, verb, namespace):
            missing.setdefault(command, []).append(f"{verb} {kind.plural}")
    if not missing:
        yield Finding("rights", "ok", f"all that tpulaunch uses in namespace {namespace}")
    for command, verbs in missing.items():
        verdict: Verdict = "fail" if command == "submit, delete" else "warn"
        remedy = f"{command} will not work (or say less); ask for the Role in manifests/samples/rbac.yaml"
        yield Finding("rights", verdict, f"you may not {', '.join(verbs)} in namespace {namespace}", remedy)


def _may(api: Api, kind: Kind, verb: str, namespace: str) -> bool:
    plural, _, sub = kind.plural.partition("/")
    attributes = {"group": kind.group, "resource": plural, "subresource": sub, "verb": verb}
    if kind.is_namespaced:
        attributes["namespace"] = namespace
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.create_review("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return dig(answer, "status", "allowed") is True


def _queues(api: Api, namespace: str) -> Iterator[Finding]:
    if api.version_of(LOCAL_QUEUE) is None:
        return
    try:
        queues = api.list_all(LOCAL_QUEUE, namespace)
    except ApiError as error:
        yield Finding("queues", "warn", error.status.message)
        return
    if not queues:
        yield Finding(
            "queues", "warn", f"no LocalQueue in namespace {namespace}", "spec.schedule.queue cannot be used here"
        )
    for queue in queues:
        active = condition_of(queue, "Active")
        waiting = dig(queue, "status", "pendingWorkloads", default=0)
        behind = dig(queue, "spec", "clusterQueue")
        if active is not None and not active.is_true:
            yield Finding("queue", "warn", f"{name_of(queue)}: inactive: {active.message}", "ask an administrator")
        else:
            quota = _quota(api, str(behind))
            yield Finding("queue", "ok", f"{name_of(queue)}: {waiting} waiting{f', quota {quota}' if quota else ''}")


def _quota(api: Api, cluster_queue: str) -> str:
    try:
        queue = api.get(CLUSTER_QUEUE, None, cluster_queue)
    except ApiError:
        return ""
    parts = [
        f"{resource.get('nominalQuota')} {resource.get('name')} ({flavor.get('name')})"
        for group in dig(queue, "spec", "resourceGroups", default=[])
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
        if resource.get("name") == TPU_RESOURCE
    ]
    return ", ".join(parts)


def _slices(api: Api) -> Iterator[Finding]:
    try:
        nodes = api.list_all(NODE, labels=LABEL_ACCELERATOR)
    except ApiError as error:
        yield Finding("slices", "warn", f"nodes cannot be read: {error.status.message}")
        return
    found = offers(nodes)
    if not found:
        remedy = "create a TPU node pool; with autoscaling from zero this is normal"
        yield Finding("slices", "warn", "no node with a TPU is up", remedy)
    for offer in found:
        words = (
            f"{offer.generation} {offer.topology}: {offer.num_slices} whole, {offer.num_nodes} nodes of "
            f"{offer.chips_per_host} chips, {offer.capacity} ({', '.join(offer.pools)})"
        )
        verdict: Verdict = "ok" if offer.num_slices and offer.chips_per_host else "warn"
        yield Finding(
            "slice", verdict, words, "" if verdict == "ok" else "hosts are missing, not ready, or show no chips yet"
        )


def offers(nodes: list[Object]) -> list[Offer]:
    """Return what the TPU nodes offer, one entry for each generation, topology, machine and capacity."""
    groups: dict[tuple[str, str, int, str], list[Object]] = {}
    for node in nodes:
        chips = str(dig(node, "status", "allocatable", TPU_RESOURCE, default="0"))
        key = (
            label_of(node, LABEL_ACCELERATOR) or "",
            label_of(node, LABEL_TOPOLOGY) or "",
            int(chips) if chips.isdecimal() else 0,
            _capacity(node),
        )
        groups.setdefault(key, []).append(node)
    found = []
    for (accelerator, topology, num_chips, capacity), members in sorted(groups.items()):
        shape = _shape(accelerator, topology, num_chips)
        pools = tuple(sorted({label_of(node, LABEL_NODE_POOL) or "no pool" for node in members}))
        generation = shape.generation.name if shape else accelerator
        found.append(
            Offer(generation, topology, num_chips, _whole_slices(members, shape), len(members), pools, capacity)
        )
    return found


def _whole_slices(nodes: list[Object], shape: SliceShape | None) -> int:
    """A multi-host slice is one pool, and whole when all its hosts are ready; single hosts count one by one."""
    ready = Counter(label_of(node, LABEL_NODE_POOL) or name_of(node) for node in nodes if is_ready_node(node))
    hosts = shape.hosts if shape else 1
    return sum(ready.values()) if hosts == 1 else sum(number // hosts for number in ready.values())


def _shape(accelerator: str, topology: str, chips: int) -> SliceShape | None:
    for generation in GENERATIONS:
        if generation.accelerator_label != accelerator:
            continue
        shapes = [shape for shape in generation.shapes() if format_topology(shape.topology) == topology]
        return next((shape for shape in shapes if shape.machine.chips == chips), shapes[0] if shapes else None)
    return None


def _capacity(node: Object) -> str:
    if label_of(node, "cloud.google.com/gke-spot") == "true":
        return "spot"
    if label_of(node, "cloud.google.com/reservation-name"):
        return "reservation"
    return "flex-start" if label_of(node, "cloud.google.com/gke-flex-start") == "true" else "on-demand"
