"""Everything the cluster says about one job, read as far as the rights go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import HostPhase, Phase, host_phase_of, phase_of
from tpulaunch.cluster.errors import ApiError, UnreachableError
from tpulaunch.cluster.kinds import CLUSTER_QUEUE, EVENT, JOB, JOBSET, LOCAL_QUEUE, NODE, POD, WORKLOAD
from tpulaunch.cluster.logs import JobRef
from tpulaunch.cluster.objects import (
    LABEL_JOBSET,
    LABEL_MANAGED_BY,
    LABEL_QUEUE,
    MANAGER,
    Event,
    Object,
    dig,
    label_of,
    name_of,
    owned_by,
    read_event,
    uid_of,
)
from tpulaunch.cluster.pod_log import worker_containers
from tpulaunch.cluster.progress import Progress, read_records
from tpulaunch.cluster.state import Observation, present_pods
from tpuworker.spec.wire import CONTAINER

#: Hosts whose logs are asked for their last step; of a larger job the first ones speak for all.
_ASKED_HOSTS = 64
_PARALLEL = 8
#: Lines of each log that are looked through, enough to hold a progress line among others.
_TAIL_LINES = 200
_LOG_SECONDS = 5.0
_EMPTY = Progress()
T = TypeVar("T")


def observe(job: JobRef, jobset: Object | None = None, *, with_progress: bool = True) -> Observation:
    """Return what the cluster says about a job.

    Args:
        job: The job.
        jobset: Its JobSet, if it was read already.
        with_progress: Whether to ask running hosts for their last step; one request for each.

    Raises:
        NotFoundError: There is no such job.
    """
    api, namespace = job.api, job.namespace
    jobset = jobset if jobset is not None else job.get()
    phase = phase_of(jobset)
    mine = f"{LABEL_JOBSET}={job.name}"
    pods = _allowed(lambda: api.list_all(POD, namespace, labels=mine)) or []
    jobs = _allowed(lambda: api.list_all(JOB, namespace, labels=mine)) or []
    workload = _workload(job, jobset) if label_of(jobset, LABEL_QUEUE) else None
    is_waiting = phase in (Phase.QUEUED, Phase.SUSPENDED)
    local_queues = _local_queues(job) if is_waiting else None
    is_quiet = phase.is_terminal or is_waiting
    return Observation(
        jobset=jobset,
        jobs=tuple(jobs),
        pods=tuple(pods),
        workload=workload,
        nodes=None if is_quiet else _tuple(_allowed(lambda: api.list_all(NODE))),
        events=_events(job, [jobset, *jobs, *pods, *([workload] if workload else [])]),
        local_queues=_tuple(local_queues),
        cluster_queue=_cluster_queue(api, jobset, local_queues or []),
        progress=_progress(job, pods) if with_progress else {},
        now=datetime.now(UTC),
    )


def list_jobs(api: Api, namespace: str | None, labels: str | None = None, fields: str | None = None) -> list[Object]:
    """Return the JobSets that tpulaunch made in a namespace (None: in all) and that the selectors match."""
    selectors = [selector for selector in (f"{LABEL_MANAGED_BY}={MANAGER}", labels) if selector]
    return api.list_all(JOBSET, namespace, labels=",".join(selectors) or None, fields=fields)


def _allowed(read: Callable[[], T]) -> T | None:
    """Return what a read gives, or None where the rights do not reach: less is known then, and nothing fails."""
    try:
        return read()
    except ApiError as error:
        if error.status.code in (403, 404):
            return None
        raise


def _tuple(objects: Iterable[Object] | None) -> tuple[Object, ...] | None:
    return None if objects is None else tuple(objects)


def _workload(job: JobRef, jobset: Object) -> Object | None:
    found = _allowed(lambda: job.api.list_all(WORKLOAD, job.namespace)) or []
    return next((workload for workload in found if owned_by(workload, uid_of(jobset))), None)


def _local_queues(job: JobRef) -> list[Object] | None:
    if job.api.version_of(LOCAL_QUEUE) is None:
        return None
    return _allowed(lambda: job.api.list_all(LOCAL_QUEUE, job.namespace))


def _cluster_queue(api: Api, jobset: Object, local_queues: Iterable[Object]) -> Object | None:
    queue = label_of(jobset, LABEL_QUEUE)
    local = next((found for found in local_queues if name_of(found) == queue), None)
    name = dig(local, "spec", "clusterQueue")
    return _allowed(lambda: api.get(CLUSTER_QUEUE, None, str(name))) if name else None


def _events(job: JobRef, objects: list[Object]) -> tuple[Event, ...]:
    uids, names = {uid_of(obj) for obj in objects}, {(obj.get("kind"), name_of(obj)) for obj in objects}
    found = map(read_event, _allowed(lambda: job.api.list_all(EVENT, job.namespace)) or [])
    about = (event for event in found if event.uid in uids or (not event.uid and (event.kind, event.name) in names))
    return tuple(sorted(about, key=lambda event: event.last_seen))


def _progress(job: JobRef, pods: list[Object]) -> dict[str, Progress]:
    speaking = [
        pod
        for _, pod in sorted(present_pods(pods).items())
        if host_phase_of(pod) in (HostPhase.STARTED, HostPhase.READY)
    ][:_ASKED_HOSTS]
    if not speaking:
        return {}
    with ThreadPoolExecutor(_PARALLEL) as workers:
        answers = workers.map(lambda pod: _last_words(job, pod), speaking)
        return {name_of(pod): words for pod, words in zip(speaking, answers, strict=True) if words != _EMPTY}


def _last_words(job: JobRef, pod: Object) -> Progress:
    path = POD.path("v1", job.namespace, name_of(pod), "log")
    query = {"container": worker_containers(pod, CONTAINER)[0], "tailLines": _TAIL_LINES}
    try:
        with job.api.stream(path, query, read_seconds=_LOG_SECONDS) as stream:
            text = b"".join(stream).decode("utf-8", "replace")
    except (ApiError, UnreachableError):  # a node that is gone must not keep the others from being shown
        return _EMPTY
    return read_records(text.splitlines())
