"""The MosaicML stream that two contenders share: MDS directory, py1e shuffle, its own DataLoader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, cast

from streaming import StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from bench.contenders.base import Arrays
from bench.task import Task

_CANONICAL_NODES = 4


class MosaicStream:
    """One MDS directory as batches."""

    def __init__(self, task: Task, format_name: str, collate: Callable[[list[Any]], Arrays], state: object) -> None:
        os.environ.setdefault("WORLD_SIZE", "1")
        if os.environ["WORLD_SIZE"] == "1":
            clean_stale_shared_memory()
        dataset = StreamingDataset(
            local=str(task.folder(format_name)),
            shuffle=True,
            shuffle_algo="py1e",
            shuffle_seed=task.seed,
            num_canonical_nodes=_CANONICAL_NODES,
            batch_size=task.num_rows,
        )
        self.num_batches = dataset.num_samples // (task.num_rows * task.world)
        self._epochs = task.epochs
        self._loader = StreamingDataLoader(
            dataset,
            batch_size=task.num_rows,
            num_workers=task.int_option("workers", 0),
            collate_fn=collate,
            drop_last=True,
        )
        if state is not None:
            self._loader.load_state_dict(cast("dict[str, Any]", state))

    def __iter__(self) -> Iterator[Arrays]:
        for _ in range(self._epochs):
            yield from self._loader

    def state(self) -> object:
        """Return the loader's own state."""
        return self._loader.state_dict()
