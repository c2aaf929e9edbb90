"""The whole document: one TPU training job, shaped like a Kubernetes object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from tpuworker.spec.data import DataSpec, resolve_lanes
from tpuworker.spec.hardware import SliceSpec
from tpuworker.spec.object_names import DataKey, DnsLabel, ObjectName, judge_keys, judge_labels
from tpuworker.spec.pod import PodSpec
from tpuworker.spec.schedule import ScheduleSpec
from tpuworker.spec.wire import is_reserved_env
from tpuworker.strict import NonEmptyStr, NonNegativeInt, PositiveInt, StrictModel, raise_all, refusal

API_VERSION = "tpulaunch.dev/v1alpha1"
KIND = "TPUJob"

#: Most bytes of an argument, or of ``NAME=value``, that Linux passes to a program (MAX_ARG_STRLEN less its final zero).
_PASSING_LIMIT_BYTES = 131_071
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GIB = 1 << 30
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


class Metadata(StrictModel):
    """Names and marks of the job's object."""

    name: DnsLabel | None = None
    """Name of the job. Default: the user's name and a hash of the spec, so that the same file means the same job."""
    namespace: DnsLabel | None = None
    """Namespace. A flag goes before it, the kubeconfig's context after it."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the JobSet and its pods."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the JobSet."""

    @field_validator("labels")
    @classmethod
    def _labels_are_allowed(cls, labels: dict[str, str]) -> dict[str, str]:
        raise_all(judge_labels(labels))
        return labels

    @field_validator("annotations")
    @classmethod
    def _annotations_are_allowed(cls, annotations: dict[str, str]) -> dict[str, str]:
        raise_all(judge_keys(annotations))
        return annotations


class PreflightSpec(StrictModel):
    """What is proved before the first training step."""

    batches: PositiveInt = 16
    """Batches whose shape and compilation are checked, the epoch's last batch among them."""
    max_compiles: PositiveInt = 1
    """Compilations of the probe program that are allowed over all of them."""
    on_recompile: Literal["fail", "warn"] = "warn"
    """What a new compilation does during training, once every program was compiled."""


class SecretRef(StrictModel):
    """A value that stays in a Kubernetes Secret."""

    secret: ObjectName
    """Name of the Secret, in the job's namespace."""
    key: DataKey
    """Key in it."""


class TrainSpec(StrictModel):
    """What runs once the proof is given: a function in this process, or a command that attaches."""

    entrypoint: str | None = None
    """Dotted path of a function that receives the session, ``package.module.function``."""
    command: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)] | None = None
    """Program and arguments, started once on every host. It gets its session from ``tpuworker.session.attach()``."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Handed to the training function as ``session.args``."""
    steps: PositiveInt | None = None
    """Stop after so many steps, even if the epochs have more. Default: all of them."""
    log_every_steps: PositiveInt = 10
    """Steps between two progress lines."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the worker's container. They arrive byte for byte."""
    secrets: dict[str, SecretRef] = Field(default_factory=dict)
    """Variables whose value comes from a Secret."""

    @field_validator("entrypoint")
    @classmethod
    def _is_dotted(cls, entrypoint: str | None) -> str | None:
        if entrypoint is not None and not _DOTTED.fullmatch(entrypoint):
            raise refusal(
                found=repr(entrypoint),
                wanted="package.module.function",
                hint="a file is run with command: [python, file.py]",
            )
        return entrypoint

    @field_validator("env", "secrets")
    @classmethod
    def _names_are_free(cls, variables: dict[str, object]) -> dict[str, object]:
        raise_all(fault for name in variables for fault in _judge_variable(name))
        return variables

    @field_validator("env")
    @classmethod
    def _values_can_be_passed(cls, variables: dict[str, str]) -> dict[str, str]:
        raise_all(fault for name, value in variables.items() for fault in _judge_passing(value, name))
        return variables

    @field_validator("command")
    @classmethod
    def _words_can_be_passed(cls, command: tuple[str, ...] | None) -> tuple[str, ...] | None:
        raise_all(fault for index, word in enumerate(command or ()) for fault in _judge_passing(word, str(index)))
        return command

    @model_validator(mode="after")
    def _one_way_to_train(self) -> Self:
        if (self.entrypoint is None) == (self.command is None):
            raise refusal(
                found="both" if self.entrypoint else "neither entrypoint nor command",
                wanted="entrypoint or command, exactly one of them",
            )
        doubled = sorted(self.env.keys() & self.secrets.keys())
        if doubled:
            raise refusal(
                field="env",
                found=f"{doubled[0]} in env and in secrets",
                wanted="each variable in one of them",
                hint="keep the secret",
            )
        return self


def _judge_variable(name: str) -> Iterator[PydanticCustomError]:
    if not _ENV_NAME.fullmatch(name):
        yield refusal(field=name, found=repr(name), wanted="a variable name: letters, digits and _")
    if is_reserved_env(name):
        yield refusal(
            field=name,
            found=repr(name),
            wanted="a variable that neither the platform nor tpulaunch sets",
            hint="remove it: GKE knows the right value of each host",
        )


def _judge_passing(text: str, field: str) -> Iterator[PydanticCustomError]:
    if "\0" in text:
        yield refusal(field=field, found="a zero character", wanted="text that a program can be given")
    size = len(field.encode()) + 1 + len(text.encode())
    if size > _PASSING_LIMIT_BYTES:
        wanted = f"at most {_PASSING_LIMIT_BYTES}, which is all that Linux passes in one piece"
        yield refusal(field=field, found=f"{size} bytes", wanted=wanted, hint="put it into a file")


class CheckpointSpec(StrictModel):
    """Where the data cursor (and the trainer's own state) is kept."""

    dir: NonEmptyStr
    """Directory: local, gs:// or s3://. The same for all hosts."""
    every_steps: PositiveInt | None = None
    """Save the data cursor by itself every so many steps. Default: only when the trainer asks, and on SIGTERM."""
    keep: PositiveInt = 2
    """Cursors kept; the last good one always is."""


class JobSpec(StrictModel):
    """Everything a job is."""

    slice: SliceSpec
    worker: PodSpec
    data: DataSpec
    preflight: PreflightSpec = PreflightSpec()
    train: TrainSpec
    checkpoint: CheckpointSpec | None = None
    schedule: ScheduleSpec = ScheduleSpec()


class TPUJob(StrictModel):
    """One TPU training job.

    Derived numbers are properties; units and axes stand in their docstrings. The invariants that span sections
    (the batch divides over hosts and devices, lanes over hosts) hold for every instance.
    """

    api_version: Literal["tpulaunch.dev/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["TPUJob"]
    metadata: Metadata = Metadata()
    spec: JobSpec

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        raise_all(self._disagreements())
        return self

    def _disagreements(self) -> Iterator[PydanticCustomError]:
        batch, hosts, devices = self.spec.data.global_batch_size, self.num_hosts, self.num_devices
        sharers, word = (devices, "devices") if self.spec.data.batch_sharded_over == "devices" else (hosts, "hosts")
        if batch % sharers:
            below, above = batch // sharers * sharers, (batch // sharers + 1) * sharers
            yield refusal(
                field="spec.data.global_batch_size",
                found=str(batch),
                wanted=f"a multiple of the {sharers} {word} ({self.spec.slice.count} slices x "
                f"{self.hosts_per_slice} hosts x {self.spec.slice.devices_per_host} devices)",
                hint=f"write {f'{below} or ' if below else ''}{above}",
            )
        yield from self._disagreements_on_hardware()
        lanes = self.spec.data.shuffle.lanes
        if lanes != "auto" and (batch % lanes or lanes % hosts):
            yield refusal(
                field="spec.data.shuffle.lanes",
                found=str(lanes),
                wanted=f"a divisor of the global batch {batch} that is a multiple of the {hosts} hosts",
                hint=f"write {resolve_lanes(batch, hosts)} or auto" if not batch % hosts else "write auto",
            )

    def _disagreements_on_hardware(self) -> Iterator[PydanticCustomError]:
        shape, schedule = self.spec.slice.shape, self.spec.schedule
        if schedule.capacity in ("flex-start", "queued") and not shape.generation.has_workload_scheduler:
            yield refusal(
                field="spec.schedule.capacity",
                found=repr(schedule.capacity),
                wanted=f"another capacity: the Dynamic Workload Scheduler does not offer {shape.generation.name}",
                hint="write on-demand, spot or reservation",
            )

    @property
    def hosts_per_slice(self) -> int:
        """Hosts of one slice."""
        return self.spec.slice.hosts_per_slice

    @property
    def num_hosts(self) -> int:
        """Hosts of the job: slices x hosts per slice. The host rank runs over these."""
        return self.spec.slice.num_hosts

    @property
    def num_devices(self) -> int:
        """Devices of the job: hosts x devices per host."""
        return self.spec.slice.num_devices

    @property
    def rows_per_host(self) -> int:
        """Rows of a host batch: ``input_ids`` of one host is int32 [rows_per_host, max_length]."""
        return self.spec.data.global_batch_size // self.num_hosts

    @property
    def rows_per_device(self) -> int:
        """Rows one device gets of each batch."""
        if self.spec.data.batch_sharded_over == "hosts":
            return self.rows_per_host
        return self.spec.data.global_batch_size // self.num_devices

    @property
    def tokens_per_step(self) -> int:
        """Token slots of one step over the whole job, pads included."""
        return self.spec.data.global_batch_size * self.spec.data.max_length

    @property
    def num_lanes(self) -> int:
        """Lanes of the epoch; ``auto`` resolved as :class:`~tpuworker.spec.data.ShuffleSpec` says."""
        return self.spec.data.num_lanes(self.num_hosts)

    @property
    def data(self) -> DataSpec:
        """The data section: with the three properties below, all that the data engine asks of a job."""
        return self.spec.data

    @property
    def max_steps(self) -> int | None:
        """Steps after which the job ends, if that is before its epochs do."""
        return self.spec.train.steps

    @property
    def free_memory_bytes(self) -> int:
        """RAM of one host that neither its shared memory nor its volumes take."""
        worker = self.spec.worker
        memory = (worker.memory_gib or self.spec.slice.shape.machine.plan_gib) * _GIB
        shared = worker.shared_memory_gib
        others = memory // 8 if shared is None else shared * _GIB
        for volume in worker.volumes:
            if volume.scratch is not None and volume.scratch.medium == "memory":
                others += volume.scratch.scratch_gib * _GIB
            if volume.gcsfuse is not None and volume.gcsfuse.file_cache_gib:
                others += volume.gcsfuse.file_cache_gib * _GIB
        return memory - others

    def steps_per_epoch(self, num_rows: int) -> int:
        """Return the steps of one epoch over ``num_rows`` rows (packed rows, under ``layout: pack``)."""
        return self.spec.data.steps_per_epoch(num_rows)

    def num_steps(self, num_rows: int) -> int:
        """Return the steps of the whole job: all epochs, or ``train.steps`` if that is less."""
        whole = self.spec.data.epochs * self.steps_per_epoch(num_rows)
        return whole if self.spec.train.steps is None else min(whole, self.spec.train.steps)


__all__ = [
    "API_VERSION",
    "KIND",
    "CheckpointSpec",
    "JobSpec",
    "Metadata",
    "NonNegativeInt",
    "PreflightSpec",
    "SecretRef",
    "TPUJob",
    "TrainSpec",
]
