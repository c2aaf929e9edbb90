"""The ``spec.worker`` section: the container each host runs, and what is mounted into it."""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tpuworker.spec.object_names import ObjectName
from tpuworker.spec.wire import SPEC_PATH
from tpuworker.strict import NonNegativeInt, PositiveInt, StrictModel, refusal

Backend = Literal["torch_xla", "jax"]

_TAKEN_PATHS = {
    "/dev/shm": "its size is spec.worker.shared_memory_gib",
    posixpath.dirname(SPEC_PATH): "the spec is shown there",
}


class GcsFuseVolume(StrictModel):
    """A bucket through the Cloud Storage FUSE driver."""

    bucket: Annotated[str, Field(pattern=r"^(_|[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])$")]
    """Name of the bucket, without gs://; ``_`` for all that the account may read."""
    mount_options: tuple[Annotated[str, Field(pattern=r"^[^,\s]+$")], ...] = ("implicit-dirs",)
    """Options of gcsfuse."""
    file_cache_gib: PositiveInt | None = None
    """File cache in RAM. A number, never unlimited: a full cache volume makes reads fail."""


class ClaimVolume(StrictModel):
    """A PersistentVolumeClaim that exists."""

    claim: ObjectName
    """Name of the claim."""


class ScratchVolume(StrictModel):
    """Empty space that ends with the pod."""

    scratch_gib: PositiveInt
    """Size limit in GiB."""
    medium: Literal["disk", "memory"] = "disk"
    """``memory`` counts against the container's RAM."""


class VolumeSpec(StrictModel):
    """Something mounted into the worker."""

    name: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
    """Name of the volume."""
    mount_path: str
    """Where it appears: an absolute path. /tmp replaces the scratch space that is there otherwise."""
    read_only: bool = False
    """Keep the worker from writing."""
    gcsfuse: GcsFuseVolume | None = None
    pvc: ClaimVolume | None = None
    scratch: ScratchVolume | None = None

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name.startswith(("gke-gcsfuse-", "tpulaunch-")):
            raise refusal(found=repr(name), wanted="a name outside gke-gcsfuse-* and tpulaunch-*")
        return name

    @field_validator("mount_path")
    @classmethod
    def _can_be_mounted(cls, path: str) -> str:
        is_plain = path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path != "/"
        if not is_plain or ":" in path or "\0" in path:
            raise refusal(
                found=repr(path),
                wanted="an absolute path without ':', '..' or a final '/', and not / itself",
                hint=f"write {posixpath.normpath('/' + path.lstrip('/'))!r}"
                if ":" not in path and path.strip("/.")
                else "",
            )
        if path in _TAKEN_PATHS:
            raise refusal(
                found=repr(path), wanted="a path that tpulaunch does not mount itself", hint=_TAKEN_PATHS[path]
            )
        return path

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        given = [kind for kind in ("gcsfuse", "pvc", "scratch") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise refusal(
                found=" and ".join(given) or "none of them",
                wanted="exactly one of gcsfuse, pvc, scratch",
            )
        return self


class PodSpec(StrictModel):
    """The worker's container and pod. The image must hold ``tpuworker`` and the training code."""

    image: Annotated[str, Field(pattern=r"^\S+$")] | None = None
    """Image of the worker, pinned by digest so that every restart runs the same bytes. Not needed for local runs."""
    backend: Backend
    """Accelerator library."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets for a private registry."""
    service_account: ObjectName | None = None
    """Kubernetes service account, for Workload Identity."""
    memory_gib: PositiveInt | None = None
    """Memory request and limit in GiB. Default: 0.8 of the machine's RAM, less the file caches of
    gcsfuse volumes."""
    shared_memory_gib: PositiveInt | None = None
    """Size of /dev/shm, counted against the memory. Default: an eighth of the memory request."""
    user: NonNegativeInt = 1000
    """Numeric user and group of the process. 0 is root, for images or clusters whose devices only root may open."""
    read_only_root: bool = True
    """Protect the image's files: the process writes to /tmp and its volumes only."""
    privileged: bool = False
    """Needed on some older clusters only."""
    host_network: bool = False
    """Costs Workload Identity and port freedom; sets the dnsPolicy that JobSet names need."""
    volumes: tuple[VolumeSpec, ...] = ()
    """What is mounted besides /dev/shm and the spec."""

    @model_validator(mode="after")
    def _volumes_differ(self) -> Self:
        for what, values in (
            ("name", [volume.name for volume in self.volumes]),
            ("mount_path", [volume.mount_path for volume in self.volumes]),
        ):
            doubled = sorted({value for value in values if values.count(value) > 1})
            if doubled:
                raise refusal(field="volumes", found=f"{what} {doubled[0]!r} twice", wanted=f"a {what} of its own each")
        return self
