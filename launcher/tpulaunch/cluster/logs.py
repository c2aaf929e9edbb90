"""The logs of all hosts of a job as one stream: where a line comes from, and what is there so far, merged by time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import Phase, phase_of
from tpulaunch.cluster.errors import ApiError
from tpulaunch.cluster.kinds import JOBSET, POD
from tpulaunch.cluster.lines import StampedLine
from tpulaunch.cluster.objects import LABEL_JOBSET, Object, dig, name_of
from tpulaunch.cluster.pod_log import (
    Choice,
    ContainerLog,
    ContainerState,
    LogPlace,
    container_state,
    read_all,
    worker_containers,
)
from tpulaunch.cluster.state import hosts_of, present_pods
from tpulaunch.errors import InputError, NotFoundError
from tpuworker.spec.wire import CONTAINER


@dataclass(frozen=True)
class Source:
    """Where a line comes from.

    Attributes:
        slice_index: Slice, from 0.
        host_of_slice: Host of the slice, from 0.
        rank: Host rank over the job; picks the colour.
        twin: Number of the container, where several share a host; else 0.
    """

    slice_index: int
    host_of_slice: int
    rank: int
    twin: int = 0

    @property
    def label(self) -> str:
        """``slice/host``, with ``:n`` for the n-th container of a host."""
        return f"{self.slice_index}/{self.host_of_slice}" + (f":{self.twin}" if self.twin else "")


@dataclass(frozen=True)
class LogLine:
    """One line of one host."""

    source: Source
    line: StampedLine


@dataclass(frozen=True)
class Notice:
    """Something about the stream itself: waiting, a new attempt, a host whose log cannot be read."""

    text: str


Out = Callable[[LogLine | Notice], None]


@dataclass(frozen=True)
class Selection:
    """Which hosts and container are wanted.

    Attributes:
        hosts: (slice, host) pairs, host None for the whole slice; empty: all.
        container: Container; its numbered twins are meant as well.
    """

    hosts: tuple[tuple[int, int | None], ...] = ()
    container: str = CONTAINER

    def takes(self, place: tuple[int, int]) -> bool:
        """Say whether a host is wanted."""
        return not self.hosts or any(place[0] == s and host in (None, place[1]) for s, host in self.hosts)

    def of(self, jobset: Object) -> list[tuple[int, int]]:
        """Return the (slice, host of the slice) of a job that are wanted, in order.

        Raises:
            InputError: A host is wanted that the job does not have.
        """
        slices, hosts = _size(jobset)
        strangers = [
            f"{s}/{'*' if host is None else host}" for s, host in self.hosts if s >= slices or (host or 0) >= hosts
        ]
        if strangers:
            raise InputError(
                f"--host: found {', '.join(strangers)}; wanted one of the job's own, 0/0 to {slices - 1}/{hosts - 1}"
            )
        return [place for place in itertools.product(range(slices), range(hosts)) if self.takes(place)]


def _size(jobset: Object) -> tuple[int, int]:
    """Return the slices of a job and the hosts of one."""
    job = dig(jobset, "spec", "replicatedJobs", 0, default={})
    return int(job.get("replicas", 1)), hosts_of(job)


def label_width(jobset: Object) -> int:
    """Return the width of the widest ``slice/host`` of a job, so that prefixes line up from the first line on."""
    slices, hosts = _size(jobset)
    containers = dig(
        jobset, "spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", default=[]
    )
    return len(f"{slices - 1}/{hosts - 1}") + (2 if len(containers) > 1 else 0)


@dataclass(frozen=True)
class JobRef:
    """A job of a cluster, by name."""

    api: Api
    namespace: str
    name: str

    def get(self) -> Object:
        """Return its JobSet.

        Raises:
            NotFoundError: There is none of that name in the namespace.
        """
        jobset = self.api.get(JOBSET, self.namespace, self.name)
        if jobset is None:
            place = f"namespace {self.namespace} ({self.api.where})"
            raise NotFoundError(f"{JOBSET.spelled}/{self.name} does not exist in {place}")
        return jobset

    def pods(self) -> list[Object]:
        """Return its pods, of every attempt."""
        return self.api.list_all(POD, self.namespace, labels=f"{LABEL_JOBSET}={self.name}")


def print_logs(job: JobRef, selection: Selection, choice: Choice, out: Out) -> None:
    """Hand on what the hosts have logged so far, merged by time.

    Raises:
        InputError: A host is wanted that the job does not have.
        NotFoundError: There is no such job, or it has ended and no pod of the wanted hosts is left.
    """
    jobset = job.get()
    wanted, pods = selection.of(jobset), present_pods(job.pods())
    streams: list[Iterator[tuple[int, int, int, LogLine]]] = []
    silent: list[str] = []
    for place in wanted:
        pod = pods.get(place, {})
        for twin, container in enumerate(worker_containers(pod, selection.container)):
            source = source_of(jobset, place, twin)
            if not container_state(pod, container).has_started:
                silent.append(source.label)
                continue
            where = LogPlace(job.api, job.namespace, name_of(pod), container)
            streams.append(_stamped(where, container_state(pod, container), source, choice, out))
    _tell_podless(job, phase_of(jobset), [place for place in wanted if place not in pods], len(wanted), out)
    if silent:
        out(Notice(f"not started yet: {', '.join(silent)}; tpulaunch status {job.name} says why"))
    for *_, line in heapq.merge(*streams, key=lambda item: item[:3]):
        out(line)


def _tell_podless(job: JobRef, phase: Phase, podless: list[tuple[int, int]], num_wanted: int, out: Out) -> None:
    """Tell of hosts that have no pod: not yet while the job lives, no more once it has ended."""
    if not podless:
        return
    names = "every host" if len(podless) == num_wanted > 1 else ", ".join(f"{s}/{host}" for s, host in podless)
    if not phase.is_terminal:
        out(Notice(f"no pod: {names} (the job is {phase.lower()}); tpulaunch status {job.name} says why"))
        return
    text = (
        f"no pod left: {names} (the job is {phase.lower()}). Kubernetes removes the pods that still run when a job "
        f"fails, and their logs with them; on GKE, Cloud Logging keeps the lines: gcloud logging read "
        f'\'resource.type="k8s_container" resource.labels.namespace_name="{job.namespace}" '
        f'resource.labels.pod_name:"{job.name}-"\''
    )
    if len(podless) == num_wanted:
        raise NotFoundError(text)
    out(Notice(text))


def _stamped(
    where: LogPlace, state: ContainerState, source: Source, choice: Choice, out: Out
) -> Iterator[tuple[int, int, int, LogLine]]:
    """Yield a container's lines under keys that never go back, so that merging keeps each host's own order."""
    key = 0

    def log(emit: Callable[[StampedLine], None]) -> ContainerLog:
        return ContainerLog(where, choice, emit)

    try:
        for number, line in enumerate(read_all(log, state)):
            key = max(key, line.stamp_ns or 0)
            yield key, source.rank, number, LogLine(source, line)
    except ApiError as error:
        out(Notice(f"host {source.label}: its log cannot be read: {error.status.message}"))


def source_of(jobset: Object, place: tuple[int, int], twin: int) -> Source:
    """Return the source of a container's lines."""
    return Source(*place, rank=place[0] * _size(jobset)[1] + place[1], twin=twin)
