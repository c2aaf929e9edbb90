"""The usual pipeline without its slowest part: rows stay lists and become numpy arrays in the collate function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from bench.contenders.base import Arrays, use_rust_threads
from bench.contenders.datasets_plain import tokenised
from bench.contenders.datasets_stream import batches_in, restored, text_stream
from bench.task import Task


def _collate(rows: list[dict[str, list[int]]]) -> Arrays:
    return {name: np.array([row[name] for row in rows], np.int32) for name in rows[0]}


class _Stream:
    def __init__(self, task: Task, state: object) -> None:
        use_rust_threads(True)
        self.num_batches = batches_in(task)
        self._stream = restored(tokenised(task, text_stream(task)), state)
        self._loader = DataLoader(self._stream, batch_size=task.num_rows, collate_fn=_collate, drop_last=True)
        self._epochs = task.epochs

    def __iter__(self) -> Iterator[Arrays]:
        for epoch in range(self._epochs):
            self._stream.set_epoch(epoch)
            yield from self._loader

    def state(self) -> object:
        return self._stream.state_dict()


def open_stream(task: Task, state: object) -> Any:
    """Open the pipeline."""
    return _Stream(task, state)
