"""The logs of all hosts of a job as one stream: where a line comes from, and what is there so far, merged by time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import phase_of
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
from tpulaunch.errors import NotFoundError
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


def label_width(jobset: Object) -> int:
    """Return the width of the widest ``slice/host`` of a job, so that prefixes line up from the first line on."""
    jobs = dig(jobset, "spec", "replicatedJobs", default=[])
    widths = [len(f"{int(job.get('replicas', 1)) - 1}/{hosts_of(job) - 1}") for job in jobs]
    containers = dig(
        jobset, "spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", default=[]
    )
    return max(widths, default=3) + (2 if len(containers) > 1 else 0)


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
        NotFoundError: There is no such job.
    """
    jobset, name = job.get(), job.name
    pods = present_pods(job.pods())
    streams: list[Iterator[tuple[int, int, int, LogLine]]] = []
    silent: list[str] = []
    for place, pod in sorted(pods.items()):
        if not selection.takes(place):
            continue
        for twin, container in enumerate(worker_containers(pod, selection.container)):
            source = source_of(jobset, place, twin)
            if not container_state(pod, container).has_started:
                silent.append(source.label)
                continue
            where = LogPlace(job.api, job.namespace, name_of(pod), container)
            streams.append(_stamped(where, container_state(pod, container), source, choice, out))
    if silent:
        out(Notice(f"not started yet: {', '.join(silent)}; tpulaunch status {name} says why"))
    elif not pods:
        out(Notice(f"the job has no pods ({phase_of(jobset)}); tpulaunch status {name} says why"))
    for *_, line in heapq.merge(*streams, key=lambda item: item[:3]):
        out(line)


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
    hosts = hosts_of(dig(jobset, "spec", "replicatedJobs", 0, default={}))
    return Source(*place, rank=place[0] * hosts + place[1], twin=twin)
