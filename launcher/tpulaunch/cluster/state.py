"""A job as people see it: phase, counted restarts, and every slice's hosts; a pure reading of what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpulaunch.cluster.conditions import (
    HostPhase,
    Phase,
    condition_of,
    host_phase_of,
    phase_of,
    ready_slices,
    terminal_condition,
)
from tpulaunch.cluster.objects import (
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB_INDEX,
    LABEL_QUEUE,
    Event,
    Object,
    created_at,
    dig,
    index_of,
    is_deleting,
    label_of,
    name_of,
    uid_of,
)
from tpulaunch.cluster.progress import Progress, read_termination, terminated_state


@dataclass(frozen=True)
class Observation:
    """Everything the cluster says about one job, as plain objects.

    Attributes:
        jobset: The JobSet.
        jobs: Its child Jobs.
        pods: Its pods, of every attempt that is still there.
        workload: Kueue's Workload, or None.
        nodes: All nodes, or None if they may not be read.
        events: Events about any of these.
        local_queues: Kueue's queues of the namespace, or None if Kueue is not served or may not be read.
        cluster_queue: The queue behind the job's queue, or None.
        progress: What each pod's log says, by pod name; only for those that were asked.
        now: When all this was read.
    """

    jobset: Object
    jobs: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    workload: Object | None = None
    nodes: tuple[Object, ...] | None = None
    events: tuple[Event, ...] = ()
    local_queues: tuple[Object, ...] | None = None
    cluster_queue: Object | None = None
    progress: Mapping[str, Progress] = field(default_factory=dict)
    now: datetime | None = None


@dataclass(frozen=True)
class HostState:
    """One host of one slice.

    Attributes:
        slice_index: Slice, from 0.
        host_of_slice: Host of the slice, from 0.
        rank: Host rank over the job: slice x hosts per slice + host.
        phase: What its pod is doing.
        is_ready: Whether the pod is ready.
        pod: Name of the pod, or empty.
        node: Name of the node, or empty.
        attempt: Attempt of the JobSet the pod belongs to.
        container_restarts: Restarts of the container inside the pod (not the job's restarts).
        exit_code: Exit code of the worker, once it has ended.
        progress: What the worker says of itself, or None.
    """

    slice_index: int
    host_of_slice: int
    rank: int
    phase: HostPhase
    is_ready: bool = False
    pod: str = ""
    node: str = ""
    attempt: int = 0
    container_restarts: int = 0
    exit_code: int | None = None
    progress: Progress | None = None

    @property
    def label(self) -> str:
        """The host as logs and tables name it, ``slice/host``."""
        return f"{self.slice_index}/{self.host_of_slice}"


@dataclass(frozen=True)
class JobState:
    """One job.

    Attributes:
        name: Name of the JobSet.
        namespace: Its namespace.
        uid: Its UID.
        phase: What it is doing.
        reason: Kubernetes' word for how it ended or why it waits, or empty.
        message: The controller's own words.
        queue: Kueue queue, or empty.
        restarts: All restarts.
        restarts_counted: Those that use up ``max_restarts``; evictions and maintenance do not.
        max_restarts: Restarts that are allowed; None without a failure policy (none is).
        slices_ready: Slices that are ready or done.
        num_slices: Slices there are to be.
        hosts_ready: Hosts that are ready or done.
        hosts: Every host, by rank.
        created: When the JobSet was made.
        ended: When it ended, or None.
    """

    name: str
    namespace: str
    uid: str
    phase: Phase
    reason: str
    message: str
    queue: str
    restarts: int
    restarts_counted: int
    max_restarts: int | None
    slices_ready: int
    num_slices: int
    hosts_ready: int
    hosts: tuple[HostState, ...]
    created: datetime | None
    ended: datetime | None

    @property
    def num_hosts(self) -> int:
        """Hosts there are to be."""
        return len(self.hosts)

    @property
    def lead(self) -> Progress | None:
        """What the host of the lowest rank that has said anything says."""
        return next((host.progress for host in self.hosts if host.progress and host.progress != Progress()), None)


def job_state(observed: Observation) -> JobState:
    """Return the job that was observed."""
    jobset = observed.jobset
    hosts = tuple(_hosts(observed))
    slices_ready, num_slices = ready_slices(jobset)
    end = terminal_condition(jobset)
    suspended = condition_of(jobset, "Suspended")
    why = end or (suspended if suspended and suspended.is_true else None)
    limit = dig(jobset, "spec", "failurePolicy", "maxRestarts", default=0)
    return JobState(
        name=name_of(jobset),
        namespace=str(dig(jobset, "metadata", "namespace", default="")),
        uid=uid_of(jobset),
        phase=phase_of(jobset),
        reason=why.reason if why else "",
        message=why.message if why else "",
        queue=label_of(jobset, LABEL_QUEUE) or "",
        restarts=int(dig(jobset, "status", "restarts", default=0)),
        restarts_counted=int(dig(jobset, "status", "restartsCountTowardsMax", default=0)),
        max_restarts=int(limit) if dig(jobset, "spec", "failurePolicy") is not None else None,
        slices_ready=slices_ready,
        num_slices=num_slices,
        hosts_ready=sum(host.is_ready or host.phase is HostPhase.SUCCEEDED for host in hosts),
        hosts=hosts,
        created=created_at(jobset),
        ended=end.since if end else None,
    )


def present_pods(pods: tuple[Object, ...] | list[Object]) -> dict[tuple[int, int], Object]:
    """Return the pod of each (slice, host): newest attempt first, then one that is not on its way out, then newest."""
    chosen: dict[tuple[int, int], Object] = {}
    for pod in pods:
        place = place_of(pod)
        if place is not None and (place not in chosen or _age_key(pod) > _age_key(chosen[place])):
            chosen[place] = pod
    return chosen


def place_of(pod: Object) -> tuple[int, int] | None:
    """Return (slice, host of the slice) of a JobSet's pod, or None if its labels do not say."""
    slice_index, host = index_of(pod, LABEL_JOB_INDEX), index_of(pod, LABEL_COMPLETION_INDEX)
    return None if slice_index is None or host is None else (slice_index, host)


def _age_key(pod: Object) -> tuple[int, bool, float]:
    created = created_at(pod)
    return index_of(pod, LABEL_ATTEMPT) or 0, not is_deleting(pod), created.timestamp() if created else 0.0


def _hosts(observed: Observation) -> list[HostState]:
    pods = present_pods(observed.pods)
    hosts: list[HostState] = []
    for job in dig(observed.jobset, "spec", "replicatedJobs", default=[]):
        hosts_per_slice = hosts_of(job)
        for slice_index in range(int(job.get("replicas", 1))):
            for host in range(hosts_per_slice):
                pod = pods.get((slice_index, host))
                hosts.append(_host(observed, pod, slice_index, host, rank=len(hosts)))
    return hosts


def hosts_of(replicated_job: Mapping[str, Any]) -> int:
    """Return the hosts of one slice: the parallelism of the Job."""
    return int(dig(dict(replicated_job), "template", "spec", "parallelism", default=1))


def _host(observed: Observation, pod: Object | None, slice_index: int, host: int, rank: int) -> HostState:
    if pod is None:
        return HostState(slice_index, host, rank, HostPhase.ABSENT)
    phase = host_phase_of(pod)
    code = terminated_state(pod).get("exitCode") if phase in (HostPhase.FAILED, HostPhase.SUCCEEDED) else None
    statuses = dig(pod, "status", "containerStatuses", default=[])
    return HostState(
        slice_index=slice_index,
        host_of_slice=host,
        rank=rank,
        phase=phase,
        is_ready=phase is HostPhase.READY,
        pod=name_of(pod),
        node=str(dig(pod, "spec", "nodeName", default="")),
        attempt=index_of(pod, LABEL_ATTEMPT) or 0,
        container_restarts=sum(int(status.get("restartCount") or 0) for status in statuses),
        exit_code=code,
        progress=read_termination(pod) or observed.progress.get(name_of(pod)),
    )
