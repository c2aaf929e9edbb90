"""The rows that the documents of all lanes make, laid out together, and where each lane stands after every step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tpuworker.layout.pieces import Pieces, pack_stream, pack_window
from tpuworker.tokens.documents import Documents, gather_documents

Int64s = npt.NDArray[np.int64]
#: Documents of a window of a lane under ``overflow: truncate``, where no document may be split.
WINDOW = 256


@dataclass(frozen=True)
class Waiting:
    """The documents that are not used up, lane after lane and in a lane in their order.

    Attributes:
        firsts: Place in the lane of the first one, since the start of the job, int64 [lanes].
        offsets: What of it is used: tokens, or under ``truncate`` rows of its window; int64 [lanes].
        lanes: Lane of each document, int64 [documents].
        lengths: Its tokens, int64 [documents].
        parts: Documents as they came.
        part_of: Which of these holds each document, int64 [documents].
        places: Where in it, int64 [documents].
    """

    firsts: Int64s
    offsets: Int64s
    lanes: Int64s
    lengths: Int64s
    parts: tuple[Documents, ...]
    part_of: Int64s
    places: Int64s

    @classmethod
    def at(cls, places: list[tuple[int, int]]) -> Waiting:
        """Return lanes without documents that stand at these places (document, offset)."""
        firsts, offsets = np.array(places, np.int64).reshape(-1, 2).T
        none = np.zeros(0, np.int64)
        return cls(firsts, offsets, none, none, (), none, none)

    @property
    def counts(self) -> Int64s:
        """Documents of each lane, int64 [lanes]."""
        return np.bincount(self.lanes, minlength=len(self.firsts)).astype(np.int64)

    def with_more(self, documents: Documents, lanes: Int64s) -> Waiting:
        """Return them with documents that follow; ``lanes`` says whose each is, int64 [documents]."""
        all_lanes = np.concatenate([self.lanes, lanes])
        order = np.argsort(all_lanes, kind="stable")
        part_of = np.concatenate([self.part_of, np.full(len(lanes), len(self.parts))])
        places = np.concatenate([self.places, np.arange(len(lanes))])
        return replace(
            self,
            lanes=all_lanes[order],
            lengths=np.concatenate([self.lengths, documents.lengths])[order],
            parts=(*self.parts, documents),
            part_of=part_of[order],
            places=places[order],
        )

    def without_used(self, rows: LaneRows) -> Waiting:
        """Return what is left once all rows are delivered."""
        used = rows.documents[:, -1]
        counts = self.counts
        kept = np.flatnonzero(_place_in_lane(counts) >= np.repeat(used, counts))
        numbers, part_of = np.unique(self.part_of[kept], return_inverse=True)
        return Waiting(
            firsts=self.firsts + used,
            offsets=rows.offsets[:, -1],
            lanes=self.lanes[kept],
            lengths=self.lengths[kept],
            parts=tuple(self.parts[number] for number in numbers.tolist()),
            part_of=part_of.reshape(-1),
            places=self.places[kept],
        )

    def gathered(self, rows: LaneRows) -> tuple[Documents, Pieces]:
        """Return the documents that rows hold parts of, and the rows' pieces, whose documents are places in these."""
        counts = self.counts
        is_needed = _place_in_lane(counts) < np.repeat(rows.needed, counts)
        needed = np.flatnonzero(is_needed)
        by_part = np.argsort(self.part_of[needed], kind="stable")
        edges = np.searchsorted(self.part_of[needed][by_part], np.arange(len(self.parts) + 1))
        picked = [
            (part, self.places[needed[by_part[first:last]]])
            for part, first, last in zip(self.parts, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
            if last > first
        ]
        place = np.cumsum(is_needed) - 1
        return gather_documents(picked, by_part), replace(rows.pieces, documents=place[rows.pieces.documents])


@dataclass(frozen=True)
class LaneRows:
    """Rows for as many steps as every lane has enough for.

    Attributes:
        num_steps: Steps, each of ``slots`` rows of every lane.
        ready: Full rows that each lane's documents make, int64 [lanes].
        pieces: Which part of which document stands in which row. Rows are numbered lane after lane; documents are
            places in :class:`Waiting`.
        documents: Documents of the lane that are used up after so many steps, int64 [lanes, steps + 1].
        offsets: What of the next one is used, int64 [lanes, steps + 1].
        needed: Documents of each lane that the rows hold parts of, int64 [lanes].
    """

    num_steps: int
    ready: Int64s
    pieces: Pieces
    documents: Int64s
    offsets: Int64s
    needed: Int64s


def stream_rows(waiting: Waiting, *, capacity: int, slots: int, most_steps: int) -> LaneRows:
    """Return the rows of lanes whose documents may be split where a row ends.

    Args:
        waiting: The documents.
        capacity: Tokens of a row.
        slots: Rows of each lane in a step.
        most_steps: Steps to make at most.
    """
    lengths, lanes, counts = waiting.lengths, waiting.lanes, waiting.counts
    num_lanes = len(counts)
    edges = np.cumsum(counts) - counts
    totals = np.concatenate([[0], np.cumsum(lengths)])
    # Bounds of the documents, counted from the first token of their lane that is not used.
    ends = totals[1:] - (totals[edges] + waiting.offsets)[lanes]
    begins = ends - lengths
    ready = np.maximum(0, totals[edges + counts] - totals[edges] - waiting.offsets) // capacity
    num_steps = min(int(ready.min()) // slots, most_steps)
    tokens = num_steps * slots * capacity
    # Every lane gives equally many whole rows, so all of them together are one stream, lane behind lane.
    clipped = np.clip(ends, 0, tokens) + lanes * tokens
    pieces = pack_stream(np.diff(clipped, prepend=0), capacity)
    pieces = replace(pieces, begins=pieces.begins + np.maximum(0, -begins)[pieces.documents])
    if not num_steps:
        return _nothing_of(waiting, ready)
    # A document that ends with a row is used up, and an empty one behind it is not: else the place would depend on how
    # many documents were read ahead.
    used_tokens = np.arange(1, num_steps + 1) * slots * capacity
    at = np.searchsorted(clipped, used_tokens + np.arange(num_lanes)[:, None] * tokens, side="left")
    is_used_up = ends[at] == used_tokens
    return LaneRows(
        num_steps=num_steps,
        ready=ready,
        pieces=pieces,
        documents=_after(0, at - edges[:, None] + is_used_up),
        offsets=_after(waiting.offsets, np.where(is_used_up, 0, used_tokens - begins[at])),
        needed=at[:, -1] - edges + 1,
    )


def window_rows(
    waiting: Waiting, *, capacity: int, slots: int, most_steps: int, truncation_side: Literal["right", "left"]
) -> LaneRows:
    """Return the rows of lanes whose documents are packed whole, window by window.

    Args:
        waiting: The documents.
        capacity: Tokens of a row; longer documents are cut.
        slots: Rows of each lane in a step.
        most_steps: Steps to make at most.
        truncation_side: Where.
    """
    counts = waiting.counts
    edges = np.cumsum(counts) - counts
    lanes = [
        _windows(waiting.lengths[edge : edge + count], used_rows, capacity, truncation_side)
        for edge, count, used_rows in zip(edges.tolist(), counts.tolist(), waiting.offsets.tolist(), strict=True)
    ]
    ready = np.array([windows.pieces.num_rows for windows in lanes])
    num_steps = min(int(ready.min()) // slots, most_steps)
    if not num_steps:
        return _nothing_of(waiting, ready)
    num_rows = num_steps * slots
    after = np.arange(1, num_steps + 1) * slots
    parts = []
    for number, (edge, windows) in enumerate(zip(edges, lanes, strict=True)):
        mine = windows.pieces.select(0, num_rows)
        parts.append(replace(mine, rows=mine.rows + number * num_rows, documents=mine.documents + edge))
    return LaneRows(
        num_steps=num_steps,
        ready=ready,
        pieces=_joined(parts, num_rows * len(parts)),
        documents=_after(0, np.stack([windows.documents[after - 1] for windows in lanes])),
        offsets=_after(waiting.offsets, np.stack([windows.offsets[after - 1] for windows in lanes])),
        needed=np.array([windows.needed[num_rows - 1] for windows in lanes]),
    )


@dataclass(frozen=True)
class _Windows:
    """All whole windows of a lane: their pieces, and after each row what is used up, used, and needed."""

    pieces: Pieces
    documents: Int64s
    offsets: Int64s
    needed: Int64s


def _windows(lengths: Int64s, used_rows: int, capacity: int, side: Literal["right", "left"]) -> _Windows:
    none = np.zeros(0, np.int64)
    parts = [Pieces(none, none, none, none, none, 0)]
    documents, offsets, needed = [none], [none], [none]
    rows = 0
    for first in range(0, len(lengths) - WINDOW + 1, WINDOW):
        window = pack_window(lengths[first : first + WINDOW], capacity, overflow="truncate", truncation_side=side)
        taken = window.select(used_rows, window.num_rows)
        parts.append(replace(taken, rows=taken.rows + rows, documents=taken.documents + first))
        used = np.arange(used_rows + 1, window.num_rows + 1)
        is_used_up = used == window.num_rows
        documents.append(np.where(is_used_up, first + WINDOW, first))
        offsets.append(np.where(is_used_up, 0, used))
        needed.append(np.full(len(used), first + WINDOW))
        rows, used_rows = rows + taken.num_rows, 0
    return _Windows(_joined(parts, rows), *map(np.concatenate, (documents, offsets, needed)))


def _joined(parts: list[Pieces], num_rows: int) -> Pieces:
    def of(name: str) -> Int64s:
        return np.concatenate([getattr(part, name) for part in parts])

    return Pieces(of("rows"), of("documents"), of("begins"), of("lengths"), of("cut"), num_rows)


def _nothing_of(waiting: Waiting, ready: Int64s) -> LaneRows:
    none, zeros = np.zeros(0, np.int64), np.zeros_like(ready)
    return LaneRows(0, ready, Pieces(none, none, none, none, none, 0), zeros[:, None], waiting.offsets[:, None], zeros)


def _place_in_lane(counts: Int64s) -> Int64s:
    """Return int64 [documents]: 0, 1, ... in each lane."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _after(start: int | Int64s, rest: Int64s) -> Int64s:
    """Return int64 [lanes, steps + 1]: what holds before the first step, and after each."""
    return np.concatenate([np.broadcast_to(start, len(rest))[:, None], rest], axis=1)
