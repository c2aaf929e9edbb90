"""How a host's RAM is shared: the container's request, /dev/shm within them, file caches beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpuworker.errors import Fault
from tpuworker.spec.job import TPUJob
from tpuworker.spec.pod import PodSpec

#: Of a container's memory, the part that /dev/shm may take when the spec does not say.
_SHARED_MEMORY_PART = 8
#: The Cloud Storage FUSE side container itself, beside its file caches.
SIDECAR_GIB = 1


@dataclass(frozen=True)
class MemoryPlan:
    """Memory in GiB.

    Attributes:
        container_gib: Request and limit of the worker's container.
        shared_gib: Size of /dev/shm; whoever writes there pays from the container's memory.
        file_cache_gib: File caches of all gcsfuse volumes; the side container pays for them.
        has_sidecar: Whether the pod has a gcsfuse volume at all.
        host_plan_gib: What may be planned with on the machine.
    """

    container_gib: int
    shared_gib: int
    file_cache_gib: int
    has_sidecar: bool
    host_plan_gib: int

    @property
    def sidecar_gib(self) -> int:
        """Memory of the gcsfuse side container; 0 without one."""
        return self.file_cache_gib + SIDECAR_GIB if self.has_sidecar else 0


def plan_memory(job: TPUJob) -> MemoryPlan:
    """Return the shares of a host's RAM, defaults filled in; :func:`judge_memory` says whether they fit."""
    worker, machine = job.spec.worker, job.spec.slice.shape.machine
    buckets = [volume.gcsfuse for volume in worker.volumes if volume.gcsfuse is not None]
    cache_gib = sum(bucket.file_cache_gib or 0 for bucket in buckets)
    sidecar_gib = cache_gib + SIDECAR_GIB if buckets else 0
    rest_gib = max(machine.plan_gib - sidecar_gib, 0)
    container_gib = rest_gib if worker.memory_gib is None else worker.memory_gib
    shared_gib = worker.shared_memory_gib or max(container_gib // _SHARED_MEMORY_PART, 1)
    return MemoryPlan(container_gib, shared_gib, cache_gib, bool(buckets), machine.plan_gib)


def judge_memory(job: TPUJob, memory: MemoryPlan) -> Iterator[Fault]:
    """Yield what does not fit: requests beyond the node, or memory volumes that leave the process nothing."""
    worker, machine = job.spec.worker, job.spec.slice.shape.machine
    needed_gib = memory.container_gib + memory.sidecar_gib
    if needed_gib > machine.allocatable_gib:
        parts = f" ({memory.container_gib} and {memory.sidecar_gib} for gcsfuse)" if memory.has_sidecar else ""
        yield Fault(
            "spec.worker.memory_gib",
            f"{needed_gib} GiB a host{parts}",
            f"at most {machine.allocatable_gib} GiB, which is all that pods can get of a {machine.name}",
            f"write {max(memory.host_plan_gib - memory.sidecar_gib, 1)} or leave it out",
        )
    scratch_gib = _scratch_gib(worker)
    if memory.shared_gib + scratch_gib >= memory.container_gib:
        yield Fault(
            "spec.worker.volumes" if scratch_gib else "spec.worker.shared_memory_gib",
            f"{memory.shared_gib + scratch_gib} GiB of /dev/shm and memory volumes",
            f"less than the {memory.container_gib} GiB of the container, since both count against it",
            "make them smaller or use medium: disk",
        )


def _scratch_gib(worker: PodSpec) -> int:
    scratches = [volume.scratch for volume in worker.volumes if volume.scratch is not None]
    return sum(scratch.scratch_gib for scratch in scratches if scratch.medium == "memory")
