"""The stream of the ``datasets`` library that three contenders share: shuffle buffer, shard of this rank."""

from __future__ import annotations

from typing import Any, cast

from datasets import load_dataset
from datasets.distributed import split_dataset_by_node

from bench.contenders.base import parquet_files, rows_in
from bench.task import Task

_BUFFER_ROWS = 10_000


def text_stream(task: Task) -> Any:
    """Return the corpus as a shuffled stream of this rank's rows, one column."""
    stream = load_dataset("parquet", data_files=parquet_files(task), split="train", streaming=True)
    stream = stream.select_columns(["text"]).shuffle(seed=task.seed, buffer_size=_BUFFER_ROWS)
    return split_dataset_by_node(stream, rank=task.rank, world_size=task.world)


def batches_in(task: Task) -> int:
    """Return the whole batches of one epoch, were the rows shared evenly."""
    return rows_in(parquet_files(task)) // (task.num_rows * task.world)


def restored(stream: Any, state: object) -> Any:
    """Return the stream at the place of a state, or at its start."""
    if state is not None:
        stream.load_state_dict(cast("dict[str, Any]", state))
    return stream
