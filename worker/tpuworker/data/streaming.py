"""Batches packed as documents come: every lane is a stream of its own, and its place is part of the cursor.

The rows of a lane depend on its documents and on nothing else, so how many are read ahead, on how many hosts, changes
nothing. Threads tokenise; the consumer's side keeps what is not used up and cuts rows in the order of steps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import BadRow, HostBatch, Made, Work, bad_rows, checked, made_of
from tpuworker.data.cursor import Cursor
from tpuworker.data.rows import GatheredRows
from tpuworker.data.sequence import Sequence
from tpuworker.data.tokenising import touched
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import Pieces, pack_stream, pack_window
from tpuworker.tokens.documents import Documents, gather_documents

Int64s = npt.NDArray[np.int64]
#: Documents of a window of a lane under ``overflow: truncate``, where no document may be split.
_WINDOW = 256
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


class _Lane:
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

    def drop(self, count: int) -> None:
        """Let go of the first documents."""
        self.document += count
        self.lengths = self.lengths[count:]
        while count:
            documents, places = self.parts[0]
            if len(places) <= count:
                del self.parts[0]
                count -= len(places)
            else:
                self.parts[0] = (documents, places[count:])
                count = 0


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
        self._packers = [_Lane(*place) for place in places]
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
            reserve = 0 if self._splits else _WINDOW * means
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
        while self._step < self._plan.num_steps and (batch := self._batch()) is not None:
            yield batch

    def _batch(self) -> HostBatch | None:
        rows = [self._stream_rows(lane) if self._splits else self._window_rows(lane) for lane in self._packers]
        with self._lock:
            self._short = np.array([each is None for each in rows])
            if self._short.any():
                return None
            self._step += 1
        with self.counters.busy("pack"):
            made = self._packed([each for each in rows if each is not None])
        for lane, each in zip(self._packers, rows, strict=True):
            if each is not None:
                lane.drop(each.used)
                lane.offset = each.offset
        states = {
            str(number): [lane.document, lane.offset]
            for number, lane in zip(self._work.lanes, self._packers, strict=True)
        }
        bad, self._bad = tuple(self._bad), []
        self.counters.add(
            "pack", rows=self._plan.rows_per_host, num_bytes=sum(array.nbytes for array in made.arrays.values())
        )
        return HostBatch(
            arrays=checked(made.arrays, self._plan),
            step=self._step - 1,
            cursor=self._work.start.after(self._step, states),
            rows=self._plan.rows_per_host,
            account=made.account,
            bad=bad,
        )

    def _stream_rows(self, lane: _Lane) -> _LaneRows | None:
        """Return the next rows of a lane whose documents may be split where a row ends."""
        need = self._slots * self._plan.max_length + lane.offset
        count = int(np.searchsorted(np.cumsum(lane.lengths), need)) + 1
        if count > len(lane.lengths):
            return None
        pieces, position = pack_stream(lane.lengths[:count], self._plan.max_length, lane.offset, self._slots)
        return _LaneRows(lane.first(count), count, pieces, position.document, position.token)

    def _window_rows(self, lane: _Lane) -> _LaneRows | None:
        """Return the next rows of a lane whose documents are packed whole, window by window."""
        parts: list[Pieces] = []
        rows, first, offset = 0, 0, lane.offset
        while rows < self._slots:
            if first + _WINDOW > len(lane.lengths):
                return None
            window = pack_window(
                lane.lengths[first : first + _WINDOW],
                self._plan.max_length,
                overflow="truncate",
                truncation_side=self._work.data.truncation_side,
            )
            taken = window.select(offset, min(window.num_rows, offset + self._slots - rows))
            parts.append(replace(taken, rows=taken.rows + rows, documents=taken.documents + first))
            rows, offset = rows + taken.num_rows, offset + taken.num_rows
            if offset == window.num_rows:
                first, offset = first + _WINDOW, 0
        count = first + (_WINDOW if offset else 0)
        return _LaneRows(lane.first(count), count, _joined(parts, rows), first, offset)

    def _packed(self, rows: list[_LaneRows]) -> Any:
        documents = gather_documents([part for each in rows for part in each.parts])
        firsts = np.cumsum([0, *(each.count for each in rows[:-1])])
        shifted = [
            replace(each.pieces, rows=each.pieces.rows + number * self._slots, documents=each.pieces.documents + first)
            for number, (each, first) in enumerate(zip(rows, firsts.tolist(), strict=True))
        ]
        return self._work.pipeline.packed(documents, _joined(shifted, self._plan.rows_per_host))


@dataclass(frozen=True)
class _LaneRows:
    """The rows of one lane for one step.

    Attributes:
        parts: The documents they are made of.
        count: How many these are.
        pieces: Where parts of them stand.
        used: Documents that are used up afterwards.
        offset: What is used of the one after these.
    """

    parts: list[tuple[Documents, Int64s]]
    count: int
    pieces: Pieces
    used: int
    offset: int


def _joined(parts: list[Pieces], num_rows: int) -> Pieces:
    def joined(name: str) -> Int64s:
        return np.concatenate([getattr(part, name) for part in parts])

    return Pieces(
        rows=joined("rows"),
        documents=joined("documents"),
        begins=joined("begins"),
        lengths=joined("lengths"),
        cut=joined("cut"),
        num_rows=num_rows,
    )


def _places(start: Cursor, lanes: range) -> list[tuple[int, int]]:
    if not start.step:
        return [(0, 0) for _ in lanes]
    missing = [lane for lane in lanes if str(lane) not in start.lanes]
    if missing:
        found = f"{len(start.lanes)} of {start.num_lanes} lanes; lane {missing[0]} is not among them"
        hint = "a cursor of one host only: save the one that session.state_dict() gives"
        raise DataError([Fault(f"cursor at step {start.step}", found, "all lanes", hint)])
    return [(int(start.lanes[str(lane)][0]), int(start.lanes[str(lane)][1])) for lane in lanes]
