"""The making of one host's batches, without any thread: rows of the next steps, ids, arrays, what was bad."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tpuworker import arrow
from tpuworker.data.counters import Counters
from tpuworker.data.cursor import Cursor
from tpuworker.data.index import Index
from tpuworker.data.plan import DataPlan
from tpuworker.data.rows import GatheredRows, Place, UnitReader
from tpuworker.data.sequence import FILLER, RowRefs, Sequence
from tpuworker.data.tokenising import Prepared, Tokenising
from tpuworker.errors import DataError, Fault, ShapeError
from tpuworker.spec.data import DataSpec

Arrays = dict[str, npt.NDArray[np.int32]]
_FAULTS_SHOWN = 20


class Pipeline(Protocol):
    """What turns records into arrays. It is called by several threads at once.

    An object that also has ``encode`` (column to documents), ``padded`` (documents to batches of them) and
    ``records_per_call``, as :class:`tpuworker.pipeline.Pipeline` has, is given many records a call.
    """

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What decides the arrays of given records, by name."""
        ...

    def batch(self, column: Any) -> Arrays:
        """Return int32 [rows, max_length] arrays of as many records; a null record becomes a row without loss."""
        ...


class Making(Protocol):
    """How batches of a layout are made: read ahead by one thread, tokenised by several, written by one, in order."""

    @property
    def counters(self) -> Counters:
        """Where work is counted."""
        ...

    def pieces(self) -> Iterator[Any]:
        """Yield what several threads can tokenise, in order; called in a thread of its own."""
        ...

    def make(self, piece: Any) -> Made:
        """Return the documents of a piece, or its batches where the pipeline makes no documents; several threads."""
        ...

    def batches(self, documents: Any) -> Iterator[HostBatch]:
        """Yield the batches that can be written now.

        Called in the order of the pieces, by one thread, a few batches ahead of their use: their memory is the same
        few arrays again and again, which stay in the CPU's cache.
        """
        ...


@dataclass(frozen=True)
class BadRow:
    """A record that became a row without loss.

    Attributes:
        place: File and row.
        reason: One of a few words.
        detail: What was found.
    """

    place: Place
    reason: str
    detail: str


@dataclass(frozen=True)
class HostBatch:
    """This host's part of a global batch.

    Attributes:
        arrays: Name to int32 [rows_per_host, max_length].
        step: Step it belongs to, from 0, epochs counted through.
        cursor: State of the data once this batch is used: save it with the weights that have seen the batch.
        rows: Rows that hold a record; fewer than ``rows_per_host`` only where ``remainder`` is ``mask``.
        account: Where the tokens went, if the pipeline says.
        bad: Records that became rows without loss.
        unlearnable: Records that are sound, but of which no token that reaches the model carries loss.
    """

    arrays: Arrays
    step: int
    cursor: Cursor
    rows: int
    account: Any = None
    bad: tuple[BadRow, ...] = ()
    unlearnable: int = 0


@dataclass(frozen=True)
class Made:
    """Documents that are still to be put into rows; or batches of consecutive steps and the error that ended them."""

    documents: Any = None
    batches: tuple[HostBatch, ...] = ()
    error: BaseException | None = None


@dataclass(frozen=True)
class Piece:
    """The rows of consecutive steps."""

    first_step: int
    gathered: GatheredRows


@dataclass(frozen=True)
class Work:
    """What the making of batches has at hand, whatever the layout.

    Attributes:
        data: The data section of the spec.
        plan: Its numbers.
        index: Its index; with token counts where documents are packed exactly.
        lanes: Lanes of this host.
        reader: Where rows come from.
        pipeline: Records to arrays.
        tokenising: Rows to documents.
        counters: Where work is counted.
        start: Where to begin.
    """

    data: DataSpec
    plan: DataPlan
    index: Index
    lanes: range
    reader: UnitReader
    pipeline: Any
    tokenising: Tokenising
    counters: Counters
    start: Cursor

    def refuse(self, bad: Iterable[BadRow]) -> None:
        """Raise DataError for bad records where the spec says that they end the job."""
        rows = tuple(bad)
        if rows and self.data.on_bad_record == "fail":
            raise refusal(rows)


class RowMaking:
    """Batches of a layout with one record a row: every step follows from its number.

    Args:
        work: What is at hand.
    """

    def __init__(self, work: Work) -> None:
        self.counters = work.counters
        self._work, self._plan = work, work.plan
        self._sequence = Sequence(work.plan, work.index)

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows of consecutive steps.

        The first piece is one step, so that the first batch waits for nothing else; the others are as many steps as
        one call of the pipeline likes. The units of the next piece are decoded while this one is used.
        """
        coming = self._refs(self._work.start.step, 1)
        while coming is not None:
            step, refs = coming
            coming = self._refs(step + len(refs.sources) // self._plan.rows_per_host, self._steps_per_piece)
            wanted = [*refs.touched, *refs.open_units, *(coming[1].open_units if coming else ())]
            yield Piece(step, self._work.tokenising.fetch(refs, wanted))

    def _refs(self, step: int, num_steps: int) -> tuple[int, RowRefs] | None:
        num_steps = min(num_steps, self._plan.num_steps - step)
        return (step, self._sequence.rows(step, num_steps, self._work.lanes)) if num_steps > 0 else None

    @property
    def _steps_per_piece(self) -> int:
        return max(1, getattr(self._work.pipeline, "records_per_call", 0) // self._plan.rows_per_host)

    def make(self, piece: Piece) -> Made:
        """See :class:`Making`."""
        documents = self._work.tokenising.documents(piece.gathered)
        if documents is not None:
            return Made((piece, documents))
        found: list[HostBatch] = []
        try:
            for batch in self._batches(piece, None):
                found.append(batch)  # noqa: PERF402 (list() would lose those before an error)
        except Exception as error:
            return Made(batches=tuple(found), error=error)
        return Made(batches=tuple(found))

    def batches(self, documents: tuple[Piece, Prepared]) -> Iterator[HostBatch]:
        """See :class:`Making`."""
        yield from self._batches(*documents)

    def _batches(self, piece: Piece, documents: Prepared | None) -> Iterator[HostBatch]:
        gathered, rows = piece.gathered, self._plan.rows_per_host
        bad = bad_rows(self._work.reader, gathered, documents)
        filled = np.count_nonzero(gathered.refs.sources.reshape(-1, rows) != FILLER, axis=1).tolist()
        places = np.array(() if documents is None else documents.unlearnable, np.int64)
        unlearnable = np.bincount(places // rows, minlength=len(filled)).tolist()
        made = self._made(gathered, documents)
        for number in range(len(filled)):
            bad_here = tuple(row for place, row in bad if place // rows == number)
            self._work.refuse(bad_here)
            arrays, account = next(made)
            step = piece.first_step + number
            yield HostBatch(
                arrays=checked(arrays, self._plan),
                step=step,
                cursor=self._work.start.after(step + 1),
                rows=filled[number],
                account=account,
                bad=bad_here,
                unlearnable=unlearnable[number],
            )

    def _made(self, gathered: GatheredRows, documents: Prepared | None) -> Iterator[tuple[Arrays, Any]]:
        """Yield arrays and account of each batch."""
        rows, pipeline = self._plan.rows_per_host, self._work.pipeline
        padded = None if documents is None else pipeline.padded(documents)
        for first in range(0, len(gathered.refs.sources), rows):
            if padded is None:
                with self.counters.busy("tokenise"):
                    arrays, account = pipeline.batch(gathered.column.slice(first, rows)), None
            else:
                with self.counters.busy("pack"):
                    batch = next(padded)
                arrays, account = batch.arrays, batch.account
            self.counters.add("pack", rows=rows, num_bytes=sum(array.nbytes for array in arrays.values()))
            yield arrays, account


def bad_rows(reader: UnitReader, gathered: GatheredRows, documents: Prepared | None) -> list[tuple[int, BadRow]]:
    """Return the bad records of a piece by their place in its column; places without a record are none.

    Args:
        reader: Knows where rows lie.
        gathered: The rows.
        documents: What the task made of them, if it tells.
    """
    found = {record.row: (record.reason, record.detail) for record in gathered.bad}
    if gathered.column is not None:
        nulls = arrow.nulls(gathered.column)
        found = {int(place): ("null", "") for place in nulls} | found
    for record in () if documents is None else documents.bad:
        found.setdefault(record.row, (record.reason, record.detail))
    refs = gathered.refs
    return [
        (place, BadRow(reader.place(refs, place), *found[place]))
        for place in sorted(found)
        if refs.sources[place] != FILLER
    ]


def checked(arrays: Arrays, plan: DataPlan) -> Arrays:
    """Return the arrays of a batch if they have the one shape that every batch has.

    Raises:
        ShapeError: They have not.
    """
    shape = (plan.rows_per_host, plan.max_length)
    faults = [
        Fault(name, f"{array.dtype} {list(array.shape)}", f"int32 {list(shape)} in every batch")
        for name, array in arrays.items()
        if array.shape != shape or array.dtype != np.int32
    ]
    if faults:
        raise ShapeError(faults)
    return arrays


def refusal(bad: tuple[BadRow, ...]) -> DataError:
    """Return the error that names bad records under ``on_bad_record: fail``."""
    hint = "set on_bad_record to mask, or to skip with a limit"
    faults = [
        Fault(str(row.place), row.reason + (f": {row.detail}" if row.detail else ""), "a sound record", hint)
        for row in bad[:_FAULTS_SHOWN]
    ]
    return DataError(faults)
