"""LitData over chunks of ids made beforehand, cut into rows by its TokensLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
from litdata.streaming.item_loader import TokensLoader

from bench.contenders.base import Arrays
from bench.contenders.litdata_stream import LitDataStream
from bench.task import Task


def _stack(rows: list[Any]) -> Arrays:
    import torch

    ids = torch.stack(rows).numpy().astype(np.int32, copy=False)
    return {"input_ids": ids, "labels": ids}


def open_stream(task: Task, state: object) -> Any:
    """Open the chunks."""
    return LitDataStream(task, str(task.folder("litdata-tokens")), TokensLoader(block_size=task.length), _stack, state)
