"""A fast engine alone: texts in memory, ids into numpy, its own threads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.contenders.base import Arrays, parquet_files
from bench.contenders.texts import all_texts, in_calls
from bench.task import Task

_TEXTS_PER_CALL = 1_024


class _Fast:
    def __init__(self, task: Task) -> None:
        self._seed = task.seed
        self._lengths_of = _ENGINES[task.text_option("engine", "fastokens")](task)
        self._texts = all_texts(parquet_files(task))
        self.num_batches = len(self._texts) // _TEXTS_PER_CALL

    def __iter__(self) -> Iterator[Arrays]:
        for texts in in_calls(self._texts, _TEXTS_PER_CALL, self._seed):
            yield {"lengths": self._lengths_of(texts)}

    def state(self) -> object:
        raise NotImplementedError


def _fastokens(task: Task) -> Callable[[list[str]], npt.NDArray[np.int64]]:
    from fastokens._native import Tokenizer

    tokenizer = Tokenizer.from_json_str(_without_shape(task.tokenizer))

    def lengths_of(texts: list[str]) -> npt.NDArray[np.int64]:
        _, offsets = tokenizer.encode_batch_flat(texts, False)
        return np.diff(np.frombuffer(offsets, np.int64)).astype(np.int64, copy=False)

    return lengths_of


def _gigatoken(task: Task) -> Callable[[list[str]], npt.NDArray[np.int64]]:
    import awkward as ak
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(_without_shape(task.tokenizer))

    def lengths_of(texts: list[str]) -> npt.NDArray[np.int64]:
        return np.asarray(ak.num(tokenizer.encode_batch(texts)))

    return lengths_of


_ENGINES = {"fastokens": _fastokens, "gigatoken": _gigatoken}


def _without_shape(path: str) -> str:
    """Return a tokenizer.json without truncation and padding, which engines treat differently."""
    document = json.loads(Path(path).read_text())
    return json.dumps({**document, "truncation": None, "padding": None})


def open_stream(task: Task, state: object) -> Any:
    """Open the texts of a task; there is no place to go on from."""
    assert state is None
    return _Fast(task)
