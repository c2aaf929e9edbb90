"""What a loader is made from: where rows lie, how they become arrays, in which order; no world, no batch size yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tpuworker.data.batches import Pipeline
from tpuworker.data.index import Index
from tpuworker.errors import Fault, SpecError
from tpuworker.formats import FORMATS, UnitFormat
from tpuworker.spec.data import DataSpec
from tpuworker.spec.document import load_data
from tpuworker.spec.tpu import GENERATIONS
from tpuworker.storage import Storage

if TYPE_CHECKING:
    from datasets import IterableDataset

#: RAM of the smallest TPU machine, less the eighth that pods give to shared memory. Not that of this machine: it bounds
#: the shuffle buffer, so the order rests on it, and the order has to be the same everywhere.
_SMALLEST_HOST_BYTES = min(machine.plan_gib for each in GENERATIONS for machine in each.machines) << 30
_FREE_MEMORY_BYTES = _SMALLEST_HOST_BYTES - _SMALLEST_HOST_BYTES // 8


class RowPipeline(Pipeline, Protocol):
    """A pipeline with one record a row, which is given many records a call."""

    @property
    def records_per_call(self) -> int:
        """Records that are best taken at once."""
        ...

    def encode(self, column: Any) -> Any:
        """Return documents: one per record, with ``bad``."""
        ...

    def padded(self, documents: Any) -> Iterator[Any]:
        """Yield consecutive batches of documents, one a row, each with ``arrays``."""
        ...


@dataclass(frozen=True)
class Indexed:
    """Rows that can be entered anywhere: files, or a dataset of known length.

    Attributes:
        index: Their units.
        formats: Formats of the program's own, by name.
    """

    index: Index
    formats: Mapping[str, UnitFormat] = field(default_factory=dict)

    def first_unit(self, columns: Any | None) -> Any:
        """Return the rows of the first unit as a ``pyarrow.Table``.

        Args:
            columns: ``pyarrow.Schema`` of the columns to read; None reads all.
        """
        source = self.index.sources[0]
        number = int(source.unit_files[0])
        name = source.formats[number]
        reader = self.formats[name] if name in self.formats else FORMATS[name]()
        span = int(source.unit_starts[0]), int(source.unit_stops[0])
        return reader.read(Storage(), source.files[number], *span, columns).table


@dataclass(frozen=True)
class Streamed:
    """Rows that come in an order of their own, as many as there happen to be.

    Attributes:
        stream: ``datasets.IterableDataset``.
        names: Columns that are read; several become one struct column.
    """

    stream: IterableDataset
    names: tuple[str, ...]


@dataclass(frozen=True)
class ReaderJob:
    """What the engine asks of a job, for readers that are no TPUJob.

    Attributes:
        data: The data section; its global batch is that of all readers.
        num_hosts: Readers.
        max_steps: None: epochs end a pass.
        free_memory_bytes: What bounds the shuffle buffer.
    """

    data: DataSpec
    num_hosts: int = 1
    max_steps: None = None
    free_memory_bytes: int = _FREE_MEMORY_BYTES


@dataclass(frozen=True)
class Recipe:
    """Everything about the batches but who reads them.

    Attributes:
        origin: Where rows lie. A stream keeps its own order.
        prepare: Makes the pipeline for so many rows a batch.
        data: Task, length, order and the policy for bad records; its batch size and epochs say nothing yet.
        arrays: Names of the arrays that are delivered.
    """

    origin: Indexed | Streamed
    prepare: Callable[[int], RowPipeline]
    data: DataSpec
    arrays: tuple[str, ...]

    def job(self, world_size: int, batch_size: int, epochs: int) -> ReaderJob:
        """Return what the engine is to do for so many readers, each with ``batch_size`` rows of a global batch."""
        update = {"global_batch_size": world_size * batch_size, "epochs": epochs}
        return ReaderJob(self.data.model_copy(update=update), world_size)

    def shuffled(self, seed: int, buffer_size: int | Literal["auto"]) -> Recipe:
        """Return the recipe with rows permuted.

        Raises:
            SpecError: No such seed or buffer.
        """
        values = self.data.model_dump(mode="json") | {"shuffle": shuffle_section(seed, buffer_size)}
        return replace(self, data=make_data_spec(values))


def shuffle_section(seed: int, buffer_size: int | Literal["auto"]) -> dict[str, Any]:
    """Return the words of the spec for rows that are permuted."""
    return {"order": "shuffled", "seed": seed, "buffer_size": buffer_size}


def make_data_spec(values: Mapping[str, Any]) -> DataSpec:
    """Return a data section of what a caller gave; numbers may be numpy's, and rows are in order unless it says else.

    Args:
        values: As the spec has them. Source and tokenizer, where the caller holds the objects, and the batch size need
            not be among them.

    Raises:
        SpecError: Every value that the spec refuses.
    """
    held = {
        "sources": [{"files": "given"}],
        "tokenizer": {"path": "given"},
        "shuffle": {"order": "sequential"},
        "global_batch_size": 1,
    }
    return load_data(json.loads(json.dumps({**held, **values}, default=_plain)))


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's, which programs count with as well."""
    if hasattr(value, "item"):
        return value.item()
    raise SpecError([Fault("argument", repr(value), "a number or a text")])
