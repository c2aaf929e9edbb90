"""Batches of exactly packed rows: every step follows from its number, as for padded ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import HostBatch, Made, Work, bad_rows, checked
from tpuworker.data.rows import GatheredRows
from tpuworker.data.sequence import FILLER, RowRefs, Sequence
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import WINDOW_DOCUMENTS, Pieces, in_rows

Int64s = npt.NDArray[np.int64]
_WINDOWS_KEPT = 1024


@dataclass(frozen=True)
class PackedPiece:
    """The packed rows of consecutive steps.

    Attributes:
        first_step: Step of the first one.
        num_steps: How many.
        gathered: The documents they are made of, each once.
        pieces: Where parts of these stand, rows counted over all steps.
        lengths: Tokens each document had when it was measured, int64 [documents].
        filled: Whether a row holds anything, bool [rows].
    """

    first_step: int
    num_steps: int
    gathered: GatheredRows
    pieces: Pieces
    lengths: Int64s
    filled: npt.NDArray[np.bool_]


class PackedMaking:
    """The making of one host's exactly packed batches, without any thread.

    Args:
        work: What is at hand; its pipeline has ``encode``, ``plan`` and ``packed``.
    """

    def __init__(self, work: Work) -> None:
        self.counters = work.counters
        self._work, self._plan, self._index = work, work.plan, work.index
        self._sequence = Sequence(work.plan, work.index)
        self._unit_ends = [np.cumsum(source.unit_rows) for source in work.index.sources]
        # A unit of the order is a window that holds a row; the others were left out when rows were counted.
        self._window_of = [np.flatnonzero(rows) for rows in work.index.window_rows]
        self._window_pieces = lru_cache(maxsize=_WINDOWS_KEPT)(self._plan_window)

    def pieces(self) -> Iterator[PackedPiece]:
        """Yield the packed rows of consecutive steps; the first piece is one step."""
        step, length = self._work.start.step, 1
        while step < self._plan.num_steps:
            length = min(length, self._plan.num_steps - step)
            refs = self._sequence.rows(step, length, self._work.lanes)
            yield self._piece(step, length, refs)
            step, length = step + length, self._steps_per_piece

    @property
    def _steps_per_piece(self) -> int:
        # Half of what one call likes: a row holds more than one document as a rule.
        records: int = self._work.pipeline.records_per_call
        return max(1, records // (2 * self._plan.rows_per_host))

    def _plan_window(self, source: int, window: int) -> Pieces:
        first = window * WINDOW_DOCUMENTS
        lengths = self._index.lengths[source][first : first + WINDOW_DOCUMENTS]
        planned: Pieces = self._work.pipeline.plan(lengths.astype(np.int64))
        return planned

    def _piece(self, step: int, num_steps: int, refs: RowRefs) -> PackedPiece:
        parts: list[tuple[Int64s, ...]] = []
        labels = np.unique(np.stack([refs.sources, refs.units]), axis=1)
        for source, unit in labels.T.tolist():
            if source == FILLER:
                continue
            window = int(self._window_of[source][unit])
            planned = self._window_pieces(source, window)
            here = np.flatnonzero((refs.sources == source) & (refs.units == unit))
            begins = np.searchsorted(planned.rows, refs.rows[here])
            counts = np.searchsorted(planned.rows, refs.rows[here], side="right") - begins
            flat = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
            ordinals = window * WINDOW_DOCUMENTS + planned.documents[flat]
            parts.append(
                (
                    np.repeat(here, counts),
                    np.full_like(ordinals, source),
                    ordinals,
                    planned.begins[flat],
                    planned.lengths[flat],
                    planned.cut[flat],
                )
            )
        rows, sources, ordinals, begins, lengths, cut = (np.concatenate(each) for each in zip(*parts, strict=True))
        documents, where = np.unique(np.stack([sources, ordinals]), axis=1, return_inverse=True)
        num_rows = num_steps * self._plan.rows_per_host
        pieces = in_rows(Pieces(rows, where.reshape(-1), begins, lengths, cut, num_rows))
        found = self._documents(documents[0], documents[1], refs)
        measured = np.array(
            [self._index.lengths[source][ordinal] for source, ordinal in documents.T.tolist()], dtype=np.int64
        )
        gathered = self._work.tokenising.fetch(found, [*found.touched, *found.open_units])
        return PackedPiece(step, num_steps, gathered, pieces, measured, refs.sources != FILLER)

    def _documents(self, sources: Int64s, ordinals: Int64s, refs: RowRefs) -> RowRefs:
        """Return where documents lie, with the units of all windows that are open."""
        units, rows = np.zeros_like(ordinals), np.zeros_like(ordinals)
        for source, ends in enumerate(self._unit_ends):
            here = np.flatnonzero(sources == source)
            units[here] = np.searchsorted(ends, ordinals[here], side="right")
            rows[here] = ordinals[here] - (ends - self._index.sources[source].unit_rows)[units[here]]
        opened: dict[tuple[int, int], None] = {}
        for source, unit in refs.open_units:
            first = int(self._window_of[source][unit]) * WINDOW_DOCUMENTS
            last = min(first + WINDOW_DOCUMENTS, int(self._unit_ends[source][-1])) - 1
            low, high = np.searchsorted(self._unit_ends[source], [first, last], side="right")
            opened |= dict.fromkeys((source, number) for number in range(int(low), int(high) + 1))
        return RowRefs(sources, units, rows, tuple(opened))

    def make(self, piece: PackedPiece) -> Made:
        """See :class:`~tpuworker.data.batches.Making`."""
        return Made((piece, self._work.tokenising.documents(piece.gathered)))

    def batches(self, documents: tuple[PackedPiece, Any]) -> Iterator[HostBatch]:
        """See :class:`~tpuworker.data.batches.Making`."""
        yield from self._batches(*documents)

    def _batches(self, piece: PackedPiece, documents: Any) -> Iterator[HostBatch]:
        self._refuse_change(piece, documents)
        bad = bad_rows(self._work.reader, piece.gathered, documents)
        self._work.refuse(row for _, row in bad)
        rows = self._plan.rows_per_host
        packed = self._work.pipeline.packed(documents, piece.pieces)
        for number in range(piece.num_steps):
            begin, end = number * rows, (number + 1) * rows
            with self.counters.busy("pack"):
                made = next(packed)
            self.counters.add("pack", rows=rows, num_bytes=sum(array.nbytes for array in made.arrays.values()))
            step = piece.first_step + number
            yield HostBatch(
                arrays=checked(made.arrays, self._plan),
                step=step,
                cursor=self._work.start.after(step + 1),
                rows=int(np.count_nonzero(piece.filled[begin:end])),
                account=made.account,
                bad=tuple(row for _, row in bad) if number == 0 else (),
                unlearnable=len(documents.unlearnable) if number == 0 else 0,
            )

    def _refuse_change(self, piece: PackedPiece, documents: Any) -> None:
        changed = np.flatnonzero(documents.lengths != piece.lengths)
        if len(changed):
            place = self._work.reader.place(piece.gathered.refs, int(changed[0]))
            found = f"a document of {int(documents.lengths[changed[0]])} tokens"
            wanted = f"{int(piece.lengths[changed[0]])} as when it was measured"
            raise DataError([Fault(str(place), found, wanted, "the file changed: start the job anew")])


__all__ = ["PackedMaking", "PackedPiece"]
