"""Texts of one batch to padded arrays, for loaders whose DataLoader hands over lists of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.contenders.base import Arrays, load_reference, pad_id_of, padded, use_rust_threads
from bench.task import Task


def tokenising(task: Task, text_of: Callable[[Any], str]) -> Callable[[list[Any]], Arrays]:
    """Return a collate function that tokenises a batch in one call, with Rust threads where there are no workers."""
    use_rust_threads(task.int_option("workers", 0) == 0)
    return _Tokenise(task, text_of)


class _Tokenise:
    """A class, since worker processes receive it by pickle."""

    def __init__(self, task: Task, text_of: Callable[[Any], str]) -> None:
        self._length = task.length
        self._text_of = text_of
        self._tokenizer = load_reference(task)
        self._pad_id = pad_id_of(self._tokenizer)

    def __call__(self, rows: list[Any]) -> Arrays:
        texts = [self._text_of(row) for row in rows]
        return padded(self._tokenizer.encode_batch_fast(texts, add_special_tokens=False), self._length, self._pad_id)
