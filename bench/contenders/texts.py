"""Texts in memory for the raw contenders: read once, outside the window."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence


def all_texts(files: Sequence[str]) -> list[str]:
    """Return the text of every row."""
    import pyarrow.parquet as pq

    return [text for path in files for text in pq.read_table(path, columns=["text"])["text"].to_pylist()]


def in_calls(texts: list[str], texts_per_call: int, seed: int) -> Iterator[list[str]]:
    """Yield the texts in a random order, so many a call; each once, since caches would know them a second time."""
    order = list(range(len(texts)))
    random.Random(seed).shuffle(order)
    for start in range(0, len(order), texts_per_call):
        yield [texts[number] for number in order[start : start + texts_per_call]]
