"""The LitData loader that two contenders share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from litdata import StreamingDataLoader, StreamingDataset

from bench.contenders.base import Arrays
from bench.task import Task


class LitDataStream:
    """A LitData dataset as batches; the rank comes from torch.distributed, as LitData wants it."""

    def __init__(
        self, task: Task, folder: str, item_loader: Any, collate: Callable[[list[Any]], Arrays], state: object
    ) -> None:
        if task.world > 1:
            _join(task)
        dataset = StreamingDataset(folder, item_loader=item_loader, shuffle=True, drop_last=True, seed=task.seed)
        self._epochs = task.epochs
        workers = task.int_option("workers", 0)
        self._loader = StreamingDataLoader(
            dataset,
            batch_size=task.num_rows,
            num_workers=workers,
            collate_fn=collate,
            drop_last=True,
            multiprocessing_context="spawn" if workers else None,
        )
        self.num_batches = len(self._loader)
        if state is not None:
            self._loader.load_state_dict(cast("dict[str, Any]", state))

    def __iter__(self) -> Iterator[Arrays]:
        for _ in range(self._epochs):
            yield from self._loader

    def state(self) -> object:
        """Return the loader's own state."""
        return self._loader.state_dict()


def _join(task: Task) -> None:
    import torch.distributed

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=task.rank, world_size=task.world)
