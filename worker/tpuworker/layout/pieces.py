"""Which part of which document stands in which row: packing as arithmetic on lengths, without a token in sight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tpuworker.tokens.engine import Int64s

#: Documents of one window of :func:`pack_window`. Measured fill on lengths of real text: 0.998.
WINDOW_DOCUMENTS = 1024


@dataclass(frozen=True, slots=True)
class Pieces:
    """Parts of documents in their places, ordered by row and by place in the row.

    Attributes:
        rows: int64 [pieces]: row of each, from 0, not falling.
        documents: int64 [pieces]: place of its document among those whose lengths were given.
        begins: int64 [pieces]: its first token, counted in the whole document, prefix included.
        lengths: int64 [pieces]: its tokens, at least 1.
        cut: int64 [pieces]: tokens of its document that stand in no row (``truncate`` only).
        num_rows: Rows.
    """

    rows: Int64s
    documents: Int64s
    begins: Int64s
    lengths: Int64s
    cut: Int64s
    num_rows: int

    def select(self, begin: int, end: int) -> Pieces:
        """Return the pieces of rows ``begin`` to ``end`` (exclusive), rows counted from ``begin``."""
        first, last = np.searchsorted(self.rows, (begin, end))
        return Pieces(
            rows=self.rows[first:last] - begin,
            documents=self.documents[first:last],
            begins=self.begins[first:last],
            lengths=self.lengths[first:last],
            cut=self.cut[first:last],
            num_rows=min(end, self.num_rows) - begin,
        )


def in_rows(pieces: Pieces) -> Pieces:
    """Return pieces in the order of their rows; those of one row stay in theirs."""
    order = np.argsort(pieces.rows, kind="stable")
    return Pieces(
        rows=pieces.rows[order],
        documents=pieces.documents[order],
        begins=pieces.begins[order],
        lengths=pieces.lengths[order],
        cut=pieces.cut[order],
        num_rows=pieces.num_rows,
    )


def pack_window(
    lengths: Int64s,
    capacity: int,
    *,
    overflow: Literal["split", "truncate"] = "split",
    truncation_side: Literal["right", "left"] = "right",
) -> Pieces:
    """Pack documents into as few rows as best-fit-decreasing needs.

    A pure function of the lengths, so rows can be counted before a token is delivered, and any row can be made again.
    A document longer than a row is split into full rows and a rest (``split``) or cut to one row (``truncate``); no
    other document is ever split. Rows come in the order of their first documents, and so do documents in a row: the
    order of a shuffled stream stays, lengths do not sort the rows.

    Args:
        lengths: int64 [documents]: tokens of each whole document; those of length 0 take no place. One window, usually
            ``WINDOW_DOCUMENTS`` of them: more fill little better and have to be kept until all their rows are used.
        capacity: Tokens of a row.
        overflow: What becomes of documents longer than a row.
        truncation_side: End at which ``truncate`` cuts.
    """
    documents = np.flatnonzero(lengths > 0)
    whole = lengths[documents]
    if overflow == "truncate":
        kept = np.minimum(whole, capacity)
        begins = whole - kept if truncation_side == "left" else np.zeros_like(whole)
        cut = whole - kept
    else:
        num_full = whole // capacity
        num_parts = -(-whole // capacity)
        part = np.arange(num_parts.sum()) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
        begins = part * capacity
        kept = np.where(part < np.repeat(num_full, num_parts), capacity, np.repeat(whole % capacity, num_parts))
        documents = np.repeat(documents, num_parts)
        cut = np.zeros_like(kept)
    bins = _best_fit_decreasing(kept, capacity)
    return _in_order(bins, documents, begins, kept, cut)


def pack_windows(
    lengths: Int64s,
    capacity: int,
    *,
    overflow: Literal["split", "truncate"] = "split",
    truncation_side: Literal["right", "left"] = "right",
    window_documents: int = WINDOW_DOCUMENTS,
) -> Iterator[tuple[int, Pieces]]:
    """Yield the first document of each window and its pieces (whose documents count from it)."""
    for first in range(0, len(lengths), window_documents):
        window = lengths[first : first + window_documents]
        yield first, pack_window(window, capacity, overflow=overflow, truncation_side=truncation_side)


def count_rows(
    lengths: Int64s,
    capacity: int,
    *,
    overflow: Literal["split", "truncate"] = "split",
    window_documents: int = WINDOW_DOCUMENTS,
) -> Int64s:
    """Return int64 [windows]: rows that :func:`pack_windows` makes of each window."""
    windows = pack_windows(lengths, capacity, overflow=overflow, window_documents=window_documents)
    return np.array([pieces.num_rows for _, pieces in windows], np.int64)


def pack_stream(lengths: Int64s, capacity: int, token: int = 0) -> Pieces:
    """Cut documents, one behind the other, into full rows; what does not fill a row waits for the documents to come.

    No first pass, no document kept but the one in progress, every place filled; the price is that a document may be
    split wherever a row ends. Each part is a segment of its own.

    Args:
        lengths: int64 [documents]: tokens of the documents to come, in order.
        capacity: Tokens of a row.
        token: Tokens of the first document that were delivered before.

    Returns:
        The pieces of all full rows.
    """
    ends = np.cumsum(lengths) - token
    num_rows = max(0, int(ends[-1]) // capacity) if len(ends) else 0
    total = num_rows * capacity
    # A piece begins wherever a document or a row does.
    document_begins = np.maximum(ends - lengths, 0)
    borders = np.unique(np.concatenate([document_begins[lengths > 0], np.arange(num_rows + 1) * capacity]))
    borders = borders[borders <= total]
    begins, ends_of_pieces = borders[:-1], borders[1:]
    documents = np.searchsorted(ends, begins, side="right")
    return Pieces(
        rows=begins // capacity,
        documents=documents,
        begins=begins - (ends - lengths)[documents],
        lengths=ends_of_pieces - begins,
        cut=np.zeros(len(begins), np.int64),
        num_rows=num_rows,
    )


def _best_fit_decreasing(lengths: Int64s, capacity: int) -> Int64s:
    """Return int64 [pieces]: the bin of each, bins numbered as they were opened.

    One step per piece that is shorter than a row: the open bins of each remaining room are a stack, and the rooms that
    have any are the bits of one integer, so the smallest room that is large enough is its lowest bit from there on.
    """
    order = np.argsort(-lengths, kind="stable")
    bins = np.zeros(len(lengths), np.int64)
    num_full = int(np.count_nonzero(lengths == capacity))
    bins[order[:num_full]] = np.arange(num_full)
    num_bins = num_full
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    chosen = []
    for length in lengths[order[num_full:]].tolist():
        enough = rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1
            stack = by_room[room]
            where = stack.pop()
            if not stack:
                rooms &= ~(1 << room)
        else:
            room, where = capacity, num_bins
            num_bins += 1
        chosen.append(where)
        left = room - length
        if left:
            by_room[left].append(where)
            rooms |= 1 << left
    bins[order[num_full:]] = chosen
    return bins


def _in_order(bins: Int64s, documents: Int64s, begins: Int64s, lengths: Int64s, cut: Int64s) -> Pieces:
    """Number bins by their first piece, and put pieces of a bin in their order."""
    _, firsts, inverse = np.unique(bins, return_index=True, return_inverse=True)
    number: Int64s = np.empty(len(firsts), np.int64)
    number[np.argsort(firsts, kind="stable")] = np.arange(len(firsts))
    return in_rows(Pieces(number[inverse], documents, begins, lengths, cut, len(firsts)))
