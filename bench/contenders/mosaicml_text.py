"""MosaicML Streaming over MDS of text, tokenised in the collate function."""

from __future__ import annotations

from typing import Any

from bench.contenders.collate import tokenising
from bench.contenders.mosaicml_stream import MosaicStream
from bench.task import Task


def _text_of(row: Any) -> str:
    return str(row["text"])


def open_stream(task: Task, state: object) -> Any:
    """Open the MDS directory."""
    return MosaicStream(task, "mds-text", tokenising(task, _text_of), state)
