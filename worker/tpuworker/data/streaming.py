"""Batches packed as documents come: every lane is a stream of its own, and its place is part of the cursor.

The rows of a lane depend on its documents and on nothing else, so how many are read ahead, on how many hosts, changes
nothing. Threads tokenise; the consumer's side keeps what is not used up and cuts rows in the order of steps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import BadRow, HostBatch, Made, Work, bad_rows, checked, made_of
from tpuworker.data.cursor import Cursor
from tpuworker.data.lane_rows import WINDOW, Lane, LaneRows, joined, stream_rows, window_rows
from tpuworker.data.rows import GatheredRows
from tpuworker.data.sequence import Sequence
from tpuworker.data.tokenising import touched
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import Pieces, in_rows
from tpuworker.tokens.documents import Documents, gather_documents

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
        lanes: Lane of each run.
        counts: Documents of each run.
    """

    gathered: GatheredRows
    lanes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class _Encoded:
    documents: Documents
    piece: StreamPiece
    bad: tuple[tuple[int, BadRow], ...]


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
        self._packers = [Lane(*place) for place in places]
        self._step = work.start.step
        self._bad: list[BadRow] = []
        # Shared with the reading thread: what was asked for, and what is known of it.
        self._lock = threading.Lock()
        self._next = np.array([document for document, _ in places], dtype=np.int64)
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
        target, steps = float(sum(lane.offset for lane in self._packers) if self._splits else 0), 1.0
        while (counts := self._wanted(target := target + steps * tokens_per_step)) is not None:
            lanes = np.repeat(np.arange(len(self._work.lanes)), counts)
            inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            refs = self._sequence.documents(lanes + self._work.lanes.start, self._next[lanes] + inside)
            self._next += counts
            fetched = self._work.tokenising.fetch(refs, [*touched(refs), *refs.open_units])
            yield StreamPiece(fetched, tuple(range(len(counts))), tuple(counts.tolist()))
            steps = max(1.0, self._work.pipeline.records_per_call / max(1.0, float(counts.sum()) / steps))

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
        """Return the documents of a piece."""
        try:
            return Made(documents=self._documents(piece))
        except Exception as error:
            return Made(error=error)

    def _documents(self, piece: StreamPiece) -> _Encoded:
        documents = self._work.tokenising.documents(piece.gathered)
        bad = bad_rows(self._work.reader, piece.gathered, documents)
        self._work.refuse(row for _, row in bad)
        return _Encoded(documents, piece, tuple(bad))

    def assemble(self, made: Made) -> Made:
        """Return the batches that can be made now; called in the order of the pieces, by one thread."""
        if made.documents is None:
            return made
        held: _Encoded = made.documents
        first = 0
        lengths = held.documents.lengths
        with self._lock:
            for lane, count in zip(held.piece.lanes, held.piece.counts, strict=True):
                places = np.arange(first, first + count)
                self._packers[lane].add(held.documents, places)
                self._known_documents[lane] += count
                self._known_tokens[lane] += int(self._useful(lengths[places]).sum())
                first += count
        self._bad += [row for _, row in held.bad]
        return made_of(self._batches())

    def _useful(self, lengths: Int64s) -> Int64s:
        return lengths if self._splits else np.minimum(lengths, self._plan.max_length)

    def _batches(self) -> Iterator[HostBatch]:
        """Yield batches for as many steps as every lane has rows for; all their pieces are laid out at once."""
        if self._step >= self._plan.num_steps:
            return
        lanes = [self._rows_of(lane) for lane in self._packers]
        num_rows = np.array([lane.num_rows for lane in lanes])
        with self._lock:
            self._short = num_rows < self._slots
            first_step = self._step
            num_steps = min(int(num_rows.min()) // self._slots, self._plan.num_steps - first_step)
            self._step += num_steps
        if not num_steps:
            return
        documents, pieces = self._laid_out(lanes, num_steps)
        bad, self._bad = tuple(self._bad), []
        places = [(lane.document, rows) for lane, rows in zip(self._packers, lanes, strict=True)]
        for lane, rows in zip(self._packers, lanes, strict=True):
            used = num_steps * self._slots
            lane.drop(int(rows.documents[used]), int(rows.offsets[used]))
        for number in range(num_steps):
            begin, used = number * self._plan.rows_per_host, (number + 1) * self._slots
            with self.counters.busy("pack"):
                made = self._work.pipeline.packed(documents, pieces.select(begin, begin + self._plan.rows_per_host))
            self.counters.add(
                "pack", rows=self._plan.rows_per_host, num_bytes=sum(array.nbytes for array in made.arrays.values())
            )
            states = {
                str(lane): [document + int(rows.documents[used]), int(rows.offsets[used])]
                for lane, (document, rows) in zip(self._work.lanes, places, strict=True)
            }
            yield HostBatch(
                arrays=checked(made.arrays, self._plan),
                step=first_step + number,
                cursor=self._work.start.after(first_step + number + 1, states),
                rows=self._plan.rows_per_host,
                account=made.account,
                bad=() if number else bad,
            )

    def _rows_of(self, lane: Lane) -> LaneRows:
        if self._splits:
            return stream_rows(lane.lengths, lane.offset, self._plan.max_length)
        return window_rows(lane.lengths, lane.offset, self._plan.max_length, self._work.data.truncation_side)

    def _laid_out(self, lanes: list[LaneRows], num_steps: int) -> tuple[Documents, Pieces]:
        """Return the documents and the pieces of the next steps, rows step by step and in a step lane by lane."""
        used = num_steps * self._slots
        parts: list[tuple[Documents, Int64s]] = []
        pieces: list[Pieces] = []
        first = 0
        step, slot = np.divmod(np.arange(used), self._slots)
        places = step * self._plan.rows_per_host + slot
        for number, (lane, rows) in enumerate(zip(self._packers, lanes, strict=True)):
            taken = rows.pieces.select(0, used)
            row = places[taken.rows] + number * self._slots
            pieces.append(replace(taken, rows=row, documents=taken.documents + first))
            parts += lane.first(int(rows.needed[used]))
            first += int(rows.needed[used])
        return gather_documents(parts), in_rows(joined(pieces, num_steps * self._plan.rows_per_host))


def _places(start: Cursor, lanes: range) -> list[tuple[int, int]]:
    if not start.step:
        return [(0, 0) for _ in lanes]
    missing = [lane for lane in lanes if str(lane) not in start.lanes]
    if missing:
        found = f"{len(start.lanes)} of {start.num_lanes} lanes; lane {missing[0]} is not among them"
        hint = "a cursor of one host only: save the one that session.state_dict() gives"
        raise DataError([Fault(f"cursor at step {start.step}", found, "all lanes", hint)])
    return [(int(start.lanes[str(lane)][0]), int(start.lanes[str(lane)][1])) for lane in lanes]
