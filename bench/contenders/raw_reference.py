"""The yardstick: ``encode_batch_fast`` over texts in memory, with its Rust threads or with two Python threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.contenders.base import Arrays, load_reference, parquet_files, use_rust_threads
from bench.contenders.texts import all_texts, in_calls
from bench.task import Task

_TEXTS_PER_CALL = {"rust": 256, "python": 128}


class _Raw:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._threads = task.text_option("threads", "rust")
        use_rust_threads(self._threads == "rust")
        self._tokenizer = load_reference(task)
        self._texts = all_texts(parquet_files(task))
        self.num_batches = len(self._texts) // _TEXTS_PER_CALL[self._threads]

    def __iter__(self) -> Iterator[Arrays]:
        calls = in_calls(self._texts, _TEXTS_PER_CALL[self._threads], self._task.seed)
        if self._threads == "rust":
            for texts in calls:
                yield self._encode(texts)
            return
        pending: deque[Future[Arrays]] = deque()
        with ThreadPoolExecutor(self._task.num_threads) as pool:
            for texts in calls:
                pending.append(pool.submit(self._encode, texts))
                if len(pending) > self._task.num_threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _encode(self, texts: list[str]) -> Arrays:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return {"lengths": np.fromiter(map(len, encodings), np.int64, len(encodings))}

    def state(self) -> object:
        raise NotImplementedError


def open_stream(task: Task, state: object) -> Any:
    """Open the texts of a task; there is no place to go on from."""
    assert state is None
    return _Raw(task)
