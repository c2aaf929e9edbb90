"""Grain over parquet: files of this rank in turn, shuffled in windows of 10,000 rows."""

from __future__ import annotations

from typing import Any

from grain.experimental import ParquetIterDataset, RepeatIterDataset, WindowShuffleIterDataset

from bench.contenders.base import parquet_files, rows_in, use_rust_threads
from bench.contenders.grain_text import GrainStream
from bench.task import Task

_WINDOW_ROWS = 10_000


def _text_of(row: Any) -> str:
    return str(row["text"])


def open_stream(task: Task, state: object) -> Any:
    """Open the files of this rank."""
    use_rust_threads(True)
    files = parquet_files(task)[task.rank :: task.world]
    source = ParquetIterDataset(files, memory_map=True)
    source = WindowShuffleIterDataset(source, window_size=_WINDOW_ROWS, seed=task.seed)
    if task.epochs > 1:
        source = RepeatIterDataset(source, task.epochs)
    return GrainStream(task, source, rows_in(files) // task.num_rows, _text_of, state)
