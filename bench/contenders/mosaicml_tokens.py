"""MosaicML Streaming over MDS whose samples are rows of ids, made beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.contenders.base import Arrays
from bench.contenders.mosaicml_stream import MosaicStream
from bench.task import Task


def _stack(rows: list[Any]) -> Arrays:
    ids = np.stack([row["tokens"] for row in rows])
    return {"input_ids": ids, "labels": ids}


def open_stream(task: Task, state: object) -> Any:
    """Open the MDS directory."""
    return MosaicStream(task, "mds-tokens", _stack, state)
