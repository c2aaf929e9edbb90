"""The true rival in text mode: ``datasets`` only reads, two Python threads tokenise and pad."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from bench.contenders.base import Arrays, load_reference, pad_id_of, padded, use_rust_threads
from bench.contenders.datasets_stream import batches_in, text_stream
from bench.task import Task

_BATCHES_PER_CALL = 6


class _Stream:
    def __init__(self, task: Task) -> None:
        use_rust_threads(False)
        self.num_batches = batches_in(task)
        self._task = task
        self._stream = text_stream(task)
        self._tokenizer = load_reference(task)
        self._pad_id = pad_id_of(self._tokenizer)

    def __iter__(self) -> Iterator[Arrays]:
        pending: deque[Future[list[Arrays]]] = deque()
        with ThreadPoolExecutor(self._task.num_threads) as pool:
            for texts in self._calls():
                pending.append(pool.submit(self._encode, texts))
                if len(pending) > 2 * self._task.num_threads:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()

    def _calls(self) -> Iterator[list[str]]:
        for epoch in range(self._task.epochs):
            self._stream.set_epoch(epoch)
            texts = (row["text"] for row in self._stream)
            while call := list(islice(texts, _BATCHES_PER_CALL * self._task.num_rows)):
                yield call

    def _encode(self, texts: list[str]) -> list[Arrays]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        rows, length = self._task.num_rows, self._task.length
        starts = range(0, len(encodings) - rows + 1, rows)
        return [padded(encodings[start : start + rows], length, self._pad_id) for start in starts]

    def state(self) -> object:
        raise NotImplementedError


def open_stream(task: Task, state: object) -> Any:
    """Open reader and threads; what they have read ahead is in no state, so there is none."""
    assert state is None
    return _Stream(task)
