"""What a loader is made from: where rows lie, how they become arrays, in which order; no world, no batch size yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tpuworker.data.batches import Pipeline
from tpuworker.data.index import Index
from tpuworker.errors import Fault, SpecError
from tpuworker.formats import Format
from tpuworker.spec.data import DataSpec
from tpuworker.spec.document import load_job
from tpuworker.spec.job import API_VERSION, KIND, TPUJob
from tpuworker.spec.tpu import GENERATIONS, format_topology

if TYPE_CHECKING:
    from datasets import IterableDataset


class RowPipeline(Pipeline, Protocol):
    """A pipeline with one record a row, which is given many records a call."""

    @property
    def records_per_call(self) -> int:
        """Records that are best taken at once."""
        ...

    def encode(self, column: Any) -> Any:
        """Return documents: one per record, with ``bad`` and ``select(begin, end)``."""
        ...

    def rows(self, documents: Any) -> Any:
        """Return the batch of as many documents as it has rows, with ``arrays``."""
        ...


@dataclass(frozen=True)
class Indexed:
    """Rows that can be entered anywhere: files, or a dataset of known length.

    Attributes:
        index: Their units.
        formats: Formats of the program's own, by name.
    """

    index: Index
    formats: Mapping[str, Format] = field(default_factory=dict)


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
class Recipe:
    """Everything about the batches but who reads them.

    Attributes:
        origin: Where rows lie.
        prepare: Makes the pipeline for so many rows a batch.
        max_length: Tokens of a row.
        arrays: Names of the arrays that are delivered.
        shuffled: Whether the engine permutes rows. A stream keeps its own order.
        seed: Key of the order, with the epoch.
        buffer_size: Rows open at once over all readers.
        on_bad_record: ``fail``, or ``mask``: the row stays, without loss.
    """

    origin: Indexed | Streamed
    prepare: Callable[[int], RowPipeline]
    max_length: int
    arrays: tuple[str, ...]
    shuffled: bool = False
    seed: int = 0
    buffer_size: int | Literal["auto"] = "auto"
    on_bad_record: Literal["fail", "mask"] = "fail"

    def job(self, world_size: int, batch_size: int, epochs: int) -> TPUJob:
        """Return the job that the engine is to do: one reader per host, ``batch_size`` rows each."""
        return make_job(
            {
                "sources": ({"files": "given"},),
                "tokenizer": {"path": "given"},
                "max_length": self.max_length,
                "global_batch_size": world_size * batch_size,
                "epochs": epochs,
                "on_bad_record": self.on_bad_record,
                "shuffle": {
                    "order": "shuffled" if self.shuffled else "sequential",
                    "seed": self.seed,
                    "buffer_size": self.buffer_size,
                },
            },
            world_size,
        )


def make_job(data: Mapping[str, Any], world_size: int = 1) -> TPUJob:
    """Return a job of so many hosts with one chip each: the data engine takes jobs, and asks them for nothing else.

    Args:
        data: The data section as the spec has it.
        world_size: Hosts.

    Raises:
        SpecError: Every value that the spec refuses.
    """
    alone = next(g for g in GENERATIONS if any(machine.chips == 1 for machine in g.machines))
    topology = format_topology((1,) * alone.dimensions)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "spec": {
            "slice": {"generation": alone.name, "topology": topology, "count": world_size},
            "worker": {"backend": "jax"},
            "data": {"batch_sharded_over": "hosts", **data},
            "train": {"entrypoint": "a.caller"},
        },
    }
    # Through the text, which is JSON and so YAML: its faults are judged and worded in one place.
    return load_job(json.dumps(document, default=_plain))


def make_data_spec(data: Mapping[str, Any]) -> DataSpec:
    """Return a data section; a batch size is not asked for.

    Raises:
        SpecError: Every value that the spec refuses.
    """
    return make_job({"global_batch_size": 1, **data}).spec.data


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's, which programs count with as well."""
    if hasattr(value, "item"):
        return value.item()
    raise SpecError([Fault("argument", repr(value), "a number or a text")])
