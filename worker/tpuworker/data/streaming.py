"""Batches packed as documents come: every lane is a stream of its own, and its place is part of the cursor.

The rows of a lane depend on its documents and on nothing else, so how many are read ahead, on how many hosts, changes
nothing. Threads tokenise; one behind them keeps what is not used up and cuts rows in the order of steps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import BadRow, HostBatch, Made, Work, bad_rows, checked
from tpuworker.data.cursor import Cursor
from tpuworker.data.lane_rows import WINDOW, LaneRows, Waiting, stream_rows, window_rows
from tpuworker.data.rows import GatheredRows, UnitKey
from tpuworker.data.sequence import Sequence
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import Pieces, in_rows
from tpuworker.tokens.documents import Documents

Int64s = npt.NDArray[np.int64]
#: Only the first request rests on it; afterwards the lane's own mean is known.
_BYTES_PER_TOKEN = 4.0
_MOST_DOCUMENTS_A_CALL = 4096
_DOCUMENTS_FOR_SHORT = 16


@dataclass(frozen=True)
class StreamPiece:
    """Documents of several lanes, lane after lane.

    Attributes:
        gathered: The documents.
        lanes: Lane of each, int64 [documents], counted from the host's first.
    """

    gathered: GatheredRows
    lanes: Int64s


@dataclass(frozen=True)
class _Encoded:
    documents: Documents
    piece: StreamPiece
    bad: tuple[BadRow, ...]


class StreamMaking:
    """The making of one host's batches of packed streams.

    Args:
        work: What is at hand; its pipeline has ``encode`` and ``packed``.

    Raises:
        DataError: ``work.start`` does not know the lanes of this host.
    """

    def __init__(self, work: Work) -> None:
        self.counters = work.counters
        self._work, self._plan, lanes = work, work.plan, work.lanes
        self._sequence = Sequence(work.plan, work.index)
        self._splits = work.data.packing.overflow == "split"
        places = _places(work.start, lanes)
        self._lane_names = [str(lane) for lane in lanes]
        self._waiting = Waiting.at(places)
        self._step = work.start.step
        self._bad: list[BadRow] = []
        self._unlearnable = 0
        # Shared with the reading thread: what was asked for, and what is known of it.
        self._lock = threading.Lock()
        self._next = self._waiting.firsts.copy()
        self._asked = np.zeros(len(lanes), dtype=np.int64)
        self._known_documents = np.zeros(len(lanes), dtype=np.int64)
        self._known_tokens = np.zeros(len(lanes), dtype=np.int64)
        self._short = np.zeros(len(lanes), dtype=np.bool_)
        self._guess = max(1.0, work.index.mean_row_bytes / _BYTES_PER_TOKEN)

    @property
    def _slots(self) -> int:
        return self._plan.global_batch_size // self._plan.num_lanes

    def pieces(self) -> Iterator[StreamPiece]:
        """Yield documents for as long as the lanes of this host need more."""
        tokens_per_step = self._slots * self._plan.max_length
        target, steps = float(self._waiting.offsets.max() if self._splits else 0), 1.0
        while (counts := self._wanted(target := target + steps * tokens_per_step)) is not None:
            lanes = np.repeat(np.arange(len(self._work.lanes)), counts)
            inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            refs = self._sequence.documents(lanes + self._work.lanes.start, self._next[lanes] + inside)
            self._next += counts
            wanted = [*refs.touched, *refs.open_units, *self._coming_units(counts)]
            yield StreamPiece(self._work.tokenising.fetch(refs, wanted), lanes)
            steps = max(1.0, self._work.pipeline.records_per_call / max(1.0, float(counts.sum()) / steps))

    def _coming_units(self, counts: Int64s) -> tuple[UnitKey, ...]:
        """Return the open units of all lanes until each has had as many documents once more.

        Also of lanes that this piece asks nothing of: units that are not named are let go, to be decoded again.
        """
        lanes = np.repeat(np.arange(len(counts)), 2)
        places = np.stack([self._next, self._next + counts], axis=1).reshape(-1)
        return self._sequence.documents(lanes + self._work.lanes.start, places).open_units

    def _wanted(self, target: float) -> Int64s | None:
        """Return documents to ask for in each lane, int64 [lanes]; None once all steps were made.

        Args:
            target: Tokens that each lane should have had by now; an estimate, since nobody knows a document's length
                before it is tokenised. A lane that proved short and has nothing under way is given more all the same.
        """
        with self._lock:
            if self._step >= self._plan.num_steps:
                return None
            known = self._known_tokens
            means = np.where(known > 0, known / np.maximum(1, self._known_documents), self._guess)
            under_way = self._asked - self._known_documents
            reserve = 0 if self._splits else WINDOW * means
            short = np.maximum(0, target + reserve - known - under_way * means)
            most = max(1, _MOST_DOCUMENTS_A_CALL // len(self._work.lanes))
            counts = np.minimum(most, np.ceil(short / np.maximum(1.0, means))).astype(np.int64)
            counts = np.where(self._short & (under_way == 0), np.maximum(counts, _DOCUMENTS_FOR_SHORT), counts)
            if not counts.any():
                counts[np.argmin(known)] = 1
            self._asked += counts
            return counts

    def make(self, piece: StreamPiece) -> Made:
        """See :class:`~tpuworker.data.batches.Making`."""
        documents = cast("Documents", self._work.tokenising.documents(piece.gathered))
        bad = bad_rows(self._work.reader, piece.gathered, documents)
        self._work.refuse(row for _, row in bad)
        return Made(_Encoded(documents, piece, tuple(row for _, row in bad)))

    def batches(self, documents: _Encoded) -> Iterator[HostBatch]:
        """See :class:`~tpuworker.data.batches.Making`."""
        lanes = documents.piece.lanes
        with self._lock:
            self._known_documents += np.bincount(lanes, minlength=len(self._lane_names))
            tokens = np.bincount(lanes, self._useful(documents.documents.lengths), minlength=len(self._lane_names))
            self._known_tokens += tokens.astype(np.int64)
        self._waiting = self._waiting.with_more(documents.documents, lanes)
        self._bad += documents.bad
        self._unlearnable += len(documents.documents.unlearnable)
        yield from self._batches()

    def _useful(self, lengths: Int64s) -> Int64s:
        return lengths if self._splits else np.minimum(lengths, self._plan.max_length)

    def _batches(self) -> Iterator[HostBatch]:
        """Yield batches for as many steps as every lane has rows for; all their pieces are laid out at once."""
        if self._step >= self._plan.num_steps:
            return
        with self.counters.busy("pack"):
            rows = self._rows()
            with self._lock:
                self._short = rows.ready < self._slots
                first_step = self._step
                self._step += rows.num_steps
            if not rows.num_steps:
                return
            documents, pieces = self._waiting.gathered(rows)
            pieces = self._in_steps(pieces, rows.num_steps)
            places = np.stack([self._waiting.firsts[:, None] + rows.documents, rows.offsets], axis=2)
            states = places.transpose(1, 0, 2).tolist()
            self._waiting = self._waiting.without_used(rows)
        bad, self._bad = tuple(self._bad), []
        unlearnable, self._unlearnable = self._unlearnable, 0
        packed = self._work.pipeline.packed(documents, pieces)
        for number in range(rows.num_steps):
            with self.counters.busy("pack"):
                made = next(packed)
            self.counters.add(
                "pack", rows=self._plan.rows_per_host, num_bytes=sum(array.nbytes for array in made.arrays.values())
            )
            step = first_step + number + 1
            yield HostBatch(
                arrays=checked(made.arrays, self._plan),
                step=step - 1,
                cursor=self._work.start.after(step, dict(zip(self._lane_names, states[number + 1], strict=True))),
                rows=self._plan.rows_per_host,
                account=made.account,
                bad=() if number else bad,
                unlearnable=0 if number else unlearnable,
            )

    def _rows(self) -> LaneRows:
        limits = {
            "capacity": self._plan.max_length,
            "slots": self._slots,
            "most_steps": self._plan.num_steps - self._step,
        }
        if self._splits:
            return stream_rows(self._waiting, **limits)
        return window_rows(self._waiting, **limits, truncation_side=self._work.data.truncation_side)

    def _in_steps(self, pieces: Pieces, num_steps: int) -> Pieces:
        """Return pieces whose rows are numbered lane after lane with rows step by step, in a step lane by lane."""
        lane, row = np.divmod(pieces.rows, num_steps * self._slots)
        step, slot = np.divmod(row, self._slots)
        return in_rows(replace(pieces, rows=step * self._plan.rows_per_host + lane * self._slots + slot))


def _places(start: Cursor, lanes: range) -> list[tuple[int, int]]:
    if not start.step:
        return [(0, 0) for _ in lanes]
    missing = [lane for lane in lanes if str(lane) not in start.lanes]
    if missing:
        found = f"{len(start.lanes)} of {start.num_lanes} lanes; lane {missing[0]} is not among them"
        hint = "a cursor of one host only: save the one that session.state_dict() gives"
        raise DataError([Fault(f"cursor at step {start.step}", found, "all lanes", hint)])
    return [(int(start.lanes[str(lane)][0]), int(start.lanes[str(lane)][1])) for lane in lanes]
