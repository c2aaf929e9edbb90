"""The rows that the documents of one lane make, and where the lane stands after each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tpuworker.layout.pieces import Pieces, pack_stream, pack_window
from tpuworker.tokens.documents import Documents

Int64s = npt.NDArray[np.int64]
#: Documents of a window of a lane under ``overflow: truncate``, where no document may be split.
WINDOW = 256


class Lane:
    """The documents of a lane that are not used up.

    Args:
        document: Place of the first one in the lane, since the start of the job.
        offset: What of it is used: tokens, or under ``truncate`` rows of its window.
    """

    def __init__(self, document: int, offset: int) -> None:
        self.document, self.offset = document, offset
        self.parts: list[tuple[Documents, Int64s]] = []
        self.lengths: Int64s = np.zeros(0, dtype=np.int64)

    def add(self, documents: Documents, places: Int64s) -> None:
        """Take documents that follow."""
        self.parts.append((documents, places))
        self.lengths = np.concatenate([self.lengths, documents.lengths[places]])

    def first(self, count: int) -> list[tuple[Documents, Int64s]]:
        """Return the first documents."""
        found = []
        for documents, places in self.parts:
            if count <= 0:
                break
            found.append((documents, places[:count]))
            count -= len(places)
        return found

    def drop(self, count: int, offset: int) -> None:
        """Let go of the first documents; of the one behind them, ``offset`` is used."""
        self.document += count
        self.offset = offset
        self.lengths = self.lengths[count:]
        while count:
            documents, places = self.parts[0]
            if len(places) <= count:
                del self.parts[0]
                count -= len(places)
            else:
                self.parts[0] = (documents, places[count:])
                count = 0


@dataclass(frozen=True)
class LaneRows:
    """All full rows that a lane's documents make.

    Attributes:
        pieces: Which part of which document stands in which row; documents count from the lane's first.
        documents: The document that is not used up after so many rows, int64 [rows + 1].
        offsets: What of it is used, int64 [rows + 1].
        needed: Documents that so many rows hold parts of, int64 [rows + 1].
    """

    pieces: Pieces
    documents: Int64s
    offsets: Int64s
    needed: Int64s

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return self.pieces.num_rows


def stream_rows(lengths: Int64s, offset: int, capacity: int) -> LaneRows:
    """Return the rows of a lane whose documents may be split where a row ends.

    Args:
        lengths: int64 [documents]: tokens of those that are not used up.
        offset: Tokens of the first one that are used.
        capacity: Tokens of a row.
    """
    pieces = pack_stream(lengths, capacity, offset)
    # Bounds of the documents, counted from the first token that is not used. A document that ends with a row is used
    # up, and an empty one behind it is not: else the place would depend on how many documents were read ahead.
    ends = np.cumsum(lengths) - offset
    totals = np.arange(1, pieces.num_rows + 1) * capacity
    at = np.searchsorted(ends, totals, side="left")
    is_used_up = ends[at] == totals
    documents = np.where(is_used_up, at + 1, at)
    offsets = np.where(is_used_up, 0, totals - (ends - lengths)[at])
    return LaneRows(pieces, _after(0, documents), _after(offset, offsets), _after(0, at + 1))


def window_rows(lengths: Int64s, offset: int, capacity: int, truncation_side: Literal["right", "left"]) -> LaneRows:
    """Return the rows of a lane whose documents are packed whole, window by window.

    Args:
        lengths: int64 [documents]: tokens of those that are not used up.
        offset: Rows of the first window that are used.
        capacity: Tokens of a row; longer documents are cut.
        truncation_side: Where.
    """
    parts: list[Pieces] = []
    documents, offsets, needed = (list[Int64s]() for _ in range(3))
    rows, first, used_rows = 0, 0, offset
    while first + WINDOW <= len(lengths):
        window = pack_window(
            lengths[first : first + WINDOW], capacity, overflow="truncate", truncation_side=truncation_side
        )
        taken = window.select(used_rows, window.num_rows)
        parts.append(replace(taken, rows=taken.rows + rows, documents=taken.documents + first))
        used = np.arange(used_rows + 1, window.num_rows + 1)
        is_used_up = used == window.num_rows
        documents.append(np.where(is_used_up, first + WINDOW, first))
        offsets.append(np.where(is_used_up, 0, used))
        needed.append(np.full(len(used), first + WINDOW))
        rows, first, used_rows = rows + taken.num_rows, first + WINDOW, 0
    return LaneRows(joined(parts, rows), _after(0, *documents), _after(offset, *offsets), _after(0, *needed))


def joined(parts: list[Pieces], num_rows: int) -> Pieces:
    """Return pieces of several runs of rows as one, in the order given."""

    def of(name: str) -> Int64s:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])

    return Pieces(of("rows"), of("documents"), of("begins"), of("lengths"), of("cut"), num_rows)


def _after(start: int, *rest: Int64s) -> Int64s:
    return np.concatenate([np.array([start], np.int64), *rest])
