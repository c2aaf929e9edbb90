"""Rows: arrays of one fixed shape with the account of the tokens that went into them; and memory that is used again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tpuworker.tokens.engine import Int32s, Int64s

#: Label of a token that carries no loss; what PyTorch's and Optax's losses skip by convention.
NO_LABEL = -100
_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class TokenAccount:
    """Where the tokens of documents went: ``delivered + cut + dropped == tokenised``.

    Attributes:
        tokenised: Tokens of all documents, prefix and suffix included.
        delivered: Tokens that stand in a row.
        cut: Tokens of delivered documents that found no room.
        dropped: Tokens of documents that were left out whole.
        trainable: Of the delivered ones, how many carry a label.
        slots: Places for tokens in all rows.
    """

    tokenised: int = 0
    delivered: int = 0
    cut: int = 0
    dropped: int = 0
    trainable: int = 0
    slots: int = 0

    def __add__(self, other: TokenAccount) -> TokenAccount:
        return TokenAccount(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def fill(self) -> float:
        """Share of the places that hold a token."""
        return self.delivered / self.slots if self.slots else 0.0


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch.

    Attributes:
        arrays: Name to int32 [rows, max_length].
        account: Where its tokens went.
    """

    arrays: dict[str, Int32s]
    account: TokenAccount


def document_lengths(arrays: Mapping[str, Int32s]) -> Int64s:
    """Return int64 [documents]: tokens of each document, or part of one, that stands in a batch.

    Args:
        arrays: Of either layout. A padded row without a document counts as one token, the one it attends to.
    """
    if "segment_ids" not in arrays:
        return arrays["attention_mask"].sum(axis=1, dtype=np.int64)  # type: ignore[no-any-return]
    segments = arrays["segment_ids"].astype(np.int64)
    keys = segments + np.arange(len(segments))[:, None] * (int(segments.max(initial=0)) + 1)
    counts: Int64s = np.unique(keys[segments > 0], return_counts=True)[1]
    return counts


class RowBuffers:
    """int32 [rows, max_length] arrays that are handed out again once nobody holds them any more.

    Fresh memory for each batch costs page faults; a fixed ring would overwrite a batch that a device transfer, a view
    or a user still reads (JAX and torch take the memory without a copy on the CPU). So the reference count decides.

    Args:
        names: Arrays of a batch.
        num_rows: Rows of a batch.
        max_length: Columns.
        most_kept: Sets of arrays kept at most; further ones are made and forgotten. A loader that reads four calls of
            a thousand records ahead holds about so many.
    """

    def __init__(self, names: tuple[str, ...], num_rows: int, max_length: int, most_kept: int = 128) -> None:
        self.names = names
        self.shape = (num_rows, max_length)
        self._most_kept = most_kept
        self._kept: list[list[Int32s]] = []
        self._lock = threading.Lock()

    def take(self) -> dict[str, Int32s]:
        """Return one array per name, content undefined."""
        with self._lock:
            for index, arrays in enumerate(self._kept):
                # Held by the list and by getrefcount's own argument: everyone else has let go.
                if all(sys.getrefcount(arrays[place]) <= _FREE for place in range(len(arrays))):
                    self._kept.append(self._kept.pop(index))
                    return dict(zip(self.names, arrays, strict=True))
            fresh = [np.empty(self.shape, np.int32) for _ in self.names]
            if len(self._kept) < self._most_kept:
                self._kept.append(fresh)
            return dict(zip(self.names, fresh, strict=True))


def blocks(shape: tuple[int, int]) -> Iterator[slice]:
    """Yield the rows of a batch in blocks that are put together at once: few enough to stay in the CPU's cache."""
    num_rows, max_length = shape
    height = max(1, _BLOCK_BYTES // (max_length * np.dtype(np.int32).itemsize))
    for first in range(0, num_rows, height):
        yield slice(first, min(first + height, num_rows))


def fill(rows: Int32s, parts: Iterable[memoryview]) -> None:
    """Write parts one behind the other: one call that copies, where NumPy would set up a copy for each.

    NumPy would also hand over the interpreter's lock at each, and wait to have it back.

    Args:
        rows: int32 [rows, max_length], one piece of memory.
        parts: int32 [tokens] each; together as many tokens as the rows have places.
    """
    rows.reshape(-1).view(np.uint8).data[:] = b"".join(parts)


@lru_cache(maxsize=256)
def constant(value: int, count: int) -> memoryview:
    """Return one value so many times, int32 [count]; the same memory each time."""
    return np.full(count, value, np.int32).data.toreadonly()


@lru_cache(maxsize=4)
def places(count: int) -> memoryview:
    """Return 0, 1, 2, ..., int32 [count]; the same memory each time."""
    return np.arange(count, dtype=np.int32).data.toreadonly()


def _count_of_unshared() -> int:
    holder = [np.empty(0, np.int32)]
    return sys.getrefcount(holder[0])


#: What getrefcount says of an array that only a list holds; asked, since interpreters differ.
_FREE = _count_of_unshared()


def check_shape(arrays: Mapping[str, Int32s], shape: tuple[int, int]) -> None:
    """Raise ValueError unless every array is int32 of this shape: buffers of another job must not pass."""
    for name, array in arrays.items():
        if array.shape != shape or array.dtype != np.int32:
            raise ValueError(f"{name}: found {array.dtype} {array.shape}, wanted int32 {shape}")
