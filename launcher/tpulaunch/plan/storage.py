"""What is mounted into the worker: the spec, /dev/shm, scratch space, and the user's volumes."""

from __future__ import annotations

from tpulaunch.plan.memory import MemoryPlan
from tpulaunch.plan.values import AnnotationFile, Claim, EmptyDir, Fuse, Mount, Pairs, Volume
from tpuworker.spec.pod import GcsFuseVolume, PodSpec, VolumeSpec
from tpuworker.spec.wire import SPEC_ANNOTATION, SPEC_PATH

SCRATCH_PATH = "/tmp"
SHARED_MEMORY_PATH = "/dev/shm"
#: Volume that the FUSE driver takes as its file cache if the pod has one of this name.
_FUSE_CACHE = "gke-gcsfuse-cache"


def plan_storage(worker: PodSpec, memory: MemoryPlan) -> tuple[tuple[Volume, ...], tuple[Mount, ...]]:
    """Return the volumes of the pod and where each container sees them."""
    spec_directory, _, spec_file = SPEC_PATH.rpartition("/")
    volumes: list[Volume] = [
        AnnotationFile("tpulaunch-spec", spec_file, SPEC_ANNOTATION),
        EmptyDir("tpulaunch-shm", "Memory", _gib(memory.shared_gib)),
    ]
    mounts = [Mount("tpulaunch-spec", spec_directory, True), Mount("tpulaunch-shm", SHARED_MEMORY_PATH, False)]
    if SCRATCH_PATH not in {volume.mount_path for volume in worker.volumes}:
        volumes.append(EmptyDir("tpulaunch-tmp"))
        mounts.append(Mount("tpulaunch-tmp", SCRATCH_PATH, False))
    if memory.file_cache_gib:
        # Without it the driver caches in 5 GiB of ephemeral storage, whatever the capacity asked for.
        volumes.append(EmptyDir(_FUSE_CACHE, "Memory", _gib(memory.file_cache_gib)))
    for volume in worker.volumes:
        volumes.append(_volume(volume, worker.host_network))
        mounts.append(Mount(volume.name, volume.mount_path, volume.read_only))
    return tuple(volumes), tuple(mounts)


def fuse_annotations(memory: MemoryPlan) -> Pairs:
    """Return the pod annotations that bring the FUSE side container in; without them nothing is mounted."""
    if not memory.has_sidecar:
        return ()
    # The file cache lies in a memory volume that the side container writes, so its limit must hold the cache.
    limit = _gib(memory.sidecar_gib)
    return (("gke-gcsfuse/volumes", "true"), ("gke-gcsfuse/memory-limit", limit))


def _volume(volume: VolumeSpec, host_network: bool) -> Volume:
    if volume.gcsfuse is not None:
        return Fuse(volume.name, volume.read_only, _fuse_attributes(volume.gcsfuse, host_network))
    if volume.pvc is not None:
        return Claim(volume.name, volume.pvc.claim, volume.read_only)
    assert volume.scratch is not None  # the spec demands exactly one of the three
    in_memory = volume.scratch.medium == "memory"
    return EmptyDir(volume.name, "Memory" if in_memory else None, _gib(volume.scratch.scratch_gib))


def _fuse_attributes(bucket: GcsFuseVolume, host_network: bool) -> Pairs:
    attributes = [("bucketName", bucket.bucket)]
    if bucket.mount_options:
        attributes.append(("mountOptions", ",".join(bucket.mount_options)))
    if bucket.file_cache_gib is not None:
        attributes += [("fileCacheCapacity", _gib(bucket.file_cache_gib)), ("fileCacheForRangeRead", "true")]
    if host_network:
        attributes.append(("hostNetworkPodKSA", "true"))
    return tuple(attributes)


def _gib(amount: int) -> str:
    return f"{amount}Gi"
