"""LitData over the parquet files as they are, tokenised in the collate function; its index is made if absent."""

from __future__ import annotations

from typing import Any

from litdata import index_parquet_dataset
from litdata.streaming.item_loader import ParquetLoader

from bench.contenders.base import linked_copy
from bench.contenders.collate import tokenising
from bench.contenders.litdata_stream import LitDataStream
from bench.task import Task


def _text_of(row: Any) -> str:
    return str(row["text"])


def open_stream(task: Task, state: object) -> Any:
    """Open the parquet files."""
    folder = linked_copy(task, "parquet")
    if not (folder / "index.json").exists():
        index_parquet_dataset(str(folder), num_workers=task.num_threads)
    return LitDataStream(task, str(folder), ParquetLoader(columns=["text"]), tokenising(task, _text_of), state)
