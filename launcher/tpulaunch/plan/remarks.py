"""What a job may do and its author may not have meant: sentences for people, never refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tpulaunch.plan.memory import MemoryPlan
from tpuworker.spec.data import FilesSource, HubSource
from tpuworker.spec.job import TPUJob
from tpuworker.spec.schedule import SPOT_GRACE_SECONDS


def remarks_on(job: TPUJob, memory: MemoryPlan) -> Iterator[str]:
    """Yield one sentence for each choice that is worth a second look, with the field it belongs to."""
    spec, shape, schedule = job.spec, job.spec.slice.shape, job.spec.schedule
    if spec.slice.count > 1 and not shape.is_multi_host:
        yield "spec.slice.count: multislice is documented for multi-host slices; single-host slices work, undocumented"
    if spec.worker.image is not None and "@sha256:" not in spec.worker.image:
        yield "spec.worker.image: not pinned by digest, so a restart may run other code than the start"
    if memory.container_gib + memory.sidecar_gib > memory.host_plan_gib:
        yield (
            f"spec.worker.memory_gib: above the {memory.host_plan_gib} GiB that are safe on a {shape.machine.name}; "
            "DaemonSets of the node may keep the pod from being scheduled"
        )
    explicit_grace = "grace_seconds" in schedule.model_fields_set
    if schedule.capacity == "spot" and explicit_grace and schedule.grace_seconds > SPOT_GRACE_SECONDS:
        yield f"spec.schedule.grace_seconds: Spot gives about {SPOT_GRACE_SECONDS} s, whatever stands here"
    if schedule.restarts and spec.checkpoint is None:
        yield "spec.checkpoint: none, so a restart begins at step 0"
    if spec.worker.host_network and spec.worker.service_account is not None:
        yield "spec.worker.host_network: the metadata server answers as the node's account, not as service_account"
    yield from _remarks_on_data(job)


def _remarks_on_data(job: TPUJob) -> Iterator[str]:
    mounts = {volume.mount_path.rstrip("/") + "/": volume for volume in job.spec.worker.volumes}
    for index, source in enumerate(job.spec.data.sources):
        path = f"spec.data.sources[{index}]"
        if isinstance(source, HubSource) and source.revision is None:
            yield f"{path}.revision: not pinned, so the rows may change between a run and its resume"
        if isinstance(source, FilesSource):
            local = [p for p in source.patterns if "://" not in p and _mount_of(p, mounts) is None]
            if local:
                yield f"{path}.files: {local[0]} must be in the image, since no volume is mounted there"
    directory = job.spec.checkpoint.dir if job.spec.checkpoint is not None else ""
    if directory and "://" not in directory:
        mount = _mount_of(directory, mounts)
        if mount is None:
            yield f"spec.checkpoint.dir: {directory} ends with the pod, since no volume is mounted there"
        elif mounts[mount].scratch is not None:
            name = mounts[mount].name
            yield f"spec.checkpoint.dir: {directory} ends with the pod, since volume {name} is scratch space"


def _mount_of(path: str, mounts: Iterable[str]) -> str | None:
    """Return the mount a path lies in: the innermost of those that hold it."""
    return max((mount for mount in mounts if f"{path}/".startswith(mount)), key=len, default=None)
