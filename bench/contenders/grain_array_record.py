"""Grain over ArrayRecord: random access, a true permutation of all rows, this rank's every so-manieth row."""

from __future__ import annotations

from typing import Any

import grain

from bench.contenders.base import use_rust_threads
from bench.contenders.grain_text import GrainStream
from bench.task import Task


def _text_of(record: bytes) -> str:
    return record.decode()


def open_stream(task: Task, state: object) -> Any:
    """Open the records of this rank."""
    use_rust_threads(task.int_option("workers", 0) == 0)
    source = grain.sources.ArrayRecordDataSource(task.files("array-record", ".array_record"))
    rows = grain.MapDataset.source(source).shuffle(seed=task.seed)[task.rank :: task.world]
    num_batches = len(rows) // task.num_rows
    if task.epochs > 1:
        rows = rows.repeat(task.epochs)
    return GrainStream(task, rows, num_batches, _text_of, state)
