"""The reader: decoded units in bounded memory, and the rows of a batch gathered from them, nothing done per row."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tpuworker import arrow
from tpuworker.data.counters import Counters
from tpuworker.data.gathering import Picked, gather_column
from tpuworker.data.index import Index, SourceIndex
from tpuworker.data.sequence import RowRefs
from tpuworker.errors import DataError, Fault
from tpuworker.formats import FORMATS, BadRecord, UnitFormat
from tpuworker.storage import Storage, redact
from tpuworker.workers import Workers

#: Decoded units that stay in RAM; what is over it is mapped from scratch, so a large window slows down and never fails.
DEFAULT_BUDGET_BYTES = 512 << 20
#: A unit above this is mapped from scratch at once: few of them would fill the budget.
SPILL_BYTES = 16 << 20
_THREADS = 2

UnitKey = tuple[int, int]


@dataclass(frozen=True)
class Place:
    """Where a row lies, for messages.

    Attributes:
        file: URL.
        row: Row of the file, from 0.
    """

    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row + 1}"


@dataclass(frozen=True)
class GatheredRows:
    """The rows of some batches.

    Attributes:
        column: ``pyarrow.Array`` [rows], null for fillers and bad rows; None where documents come from the cache.
        refs: Where each lies.
        bad: Rows the decoder could not use: place in ``column`` and why.
    """

    column: Any
    refs: RowRefs
    bad: tuple[BadRecord, ...]


@dataclass
class _Unit:
    array: Any
    bad: tuple[BadRecord, ...]
    ram_bytes: int


class UnitReader:
    """Reads units of an index.

    A unit is decoded once for as long as it is asked to stay; decoding runs ahead in threads of its own.

    Args:
        index: The units.
        storage: How bytes are read; its scratch takes what exceeds the budget.
        counters: Where work is counted.
        budget_bytes: Decoded bytes kept in RAM.
        threads: Units decoded at the same time.
        formats: Further formats by name, for rows that a program holds itself.
    """

    def __init__(
        self,
        index: Index,
        storage: Storage,
        counters: Counters,
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        threads: int = _THREADS,
        formats: Mapping[str, UnitFormat] | None = None,
    ) -> None:
        self._index = index
        self._storage = storage
        self._counters = counters
        self._budget_bytes = budget_bytes
        self._formats: dict[str, UnitFormat] = {name: kind() for name, kind in FORMATS.items()} | dict(formats or {})
        self._types = [source.schema for source in index.sources]
        same = len({str(each.field(0).type) for each in self._types}) == 1
        self._kind = self._types[0].field(0).type if same else pa.string()
        self._is_closed = False
        self._units: OrderedDict[UnitKey, _Unit] = OrderedDict()
        self._coming: dict[UnitKey, Future[_Unit]] = {}
        self._wanted: set[UnitKey] = set()
        self._lock = threading.Lock()
        self._workers = Workers(threads, "decode")

    @property
    def ram_bytes(self) -> int:
        """Decoded bytes in RAM now."""
        with self._lock:
            return sum(unit.ram_bytes for unit in self._units.values())

    def expect(self, wanted: Iterable[UnitKey]) -> None:
        """Say which units the coming rows need: those are decoded ahead and kept, all others are let go."""
        wanted = tuple(wanted)
        with self._lock:
            self._wanted = set(wanted)
            for key in [key for key in self._units if key not in self._wanted]:
                del self._units[key]
                self._storage.scratch.discard(_scratch_name(key))
            for key in [key for key, coming in self._coming.items() if key not in self._wanted and coming.cancel()]:
                del self._coming[key]
            for key in wanted:
                if key not in self._units and key not in self._coming:
                    self._coming[key] = self._workers.submit(self._decode, key)

    def gather(self, refs: RowRefs) -> GatheredRows:
        """Return rows in the order of ``refs``.

        Raises:
            DataError: A unit cannot be read, with its file.
            UnavailableError: The storage kept failing.
        """
        picked, bad = list[Picked](), list[BadRecord]()
        for key, places in refs.by_unit:
            decoded, rows = self._unit(key), refs.rows[places]
            picked.append((decoded.array, rows, places))
            bad += _bad_places(decoded.bad, rows, places)
        with self._counters.busy("read"):
            column = gather_column(picked, len(refs.sources), self._kind)
        self._counters.add("read", rows=len(column), num_bytes=column.nbytes)
        return GatheredRows(column, refs, tuple(sorted(bad, key=lambda each: each.row)))

    def whole(self, key: UnitKey) -> GatheredRows:
        """Return all delivered rows of a unit, decoded in the calling thread and not kept.

        Raises:
            DataError: The unit cannot be read, with its file.
            UnavailableError: The storage kept failing.
        """
        array, bad = self._read(key)
        rows = np.arange(len(array))
        refs = RowRefs(np.full_like(rows, key[0]), np.full_like(rows, key[1]), rows, ())
        return GatheredRows(array.cast(self._kind), refs, bad)

    @property
    def is_closed(self) -> bool:
        """Whether nobody wants rows any more."""
        return self._is_closed

    def place(self, refs: RowRefs, number: int) -> Place:
        """Return where row ``number`` of some refs lies."""
        return place_of(self._index.sources[refs.sources[number]], int(refs.units[number]), int(refs.rows[number]))

    def close(self) -> None:
        """Stop decoding; what is being decoded ends by itself."""
        self._is_closed = True
        self._workers.stop()
        with self._lock:
            for coming in self._coming.values():
                coming.cancel()
            self._units.clear()
            self._coming.clear()

    def join(self, deadline: float) -> None:
        """Wait for the decoding threads until ``time.monotonic()`` reaches ``deadline``."""
        self._workers.join(deadline)

    def _unit(self, key: UnitKey) -> _Unit:
        with self._lock:
            if key in self._units:
                self._units.move_to_end(key)
                return self._units[key]
            coming = self._coming.get(key)
            if coming is None:
                coming = self._coming[key] = self._workers.submit(self._decode, key)
        try:
            unit = coming.result()
        finally:
            with self._lock:
                self._coming.pop(key, None)
        with self._lock:
            self._units[key] = unit
        self._shrink(keep=key)
        return unit

    def _decode(self, key: UnitKey) -> _Unit:
        array, bad = self._read(key)
        if array.nbytes > SPILL_BYTES:
            return _Unit(self._spilled(key, array), bad, 0)
        return _Unit(array, bad, array.nbytes)

    def _read(self, key: UnitKey) -> tuple[Any, tuple[BadRecord, ...]]:
        """Return the delivered rows of a unit, and which of them the decoder could not use."""
        source = self._index.sources[key[0]]
        unit = key[1]
        file = source.files[source.unit_files[unit]]
        with self._counters.busy("decode"):
            decoded = self._formats[source.formats[source.unit_files[unit]]].read(
                self._storage, file, int(source.unit_starts[unit]), int(source.unit_stops[unit]), self._types[key[0]]
            )
            array = decoded.table.column(0)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            found, expected = len(array), int(source.unit_raw_rows[unit])
            if found != expected:
                raise DataError(
                    [
                        Fault(
                            redact(file.url),
                            f"{found:,} rows in unit {unit}",
                            f"{expected:,} as when it was indexed",
                            "the file changed: start the job anew",
                        )
                    ]
                )
            bad, kept = decoded.bad, source.kept_rows(unit)
            if kept is not None:
                array = arrow.take(array, kept)
                bad = tuple(_bad_places(bad, kept, np.arange(len(kept))))
        self._counters.add("decode", rows=len(array), num_bytes=array.nbytes)
        return array, tuple(bad)

    def _spilled(self, key: UnitKey, array: Any) -> Any:
        """Return the array from a mapped file: pages come and go as the kernel likes, RAM is not taken."""

        def make(path: Path) -> None:
            batch = pa.record_batch([array], names=["column"])
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)

        def opener(path: Path) -> Any:
            return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0).column(0)

        return self._storage.scratch.use(_scratch_name(key), make, opener)

    def _shrink(self, keep: UnitKey) -> None:
        """Move the least recently used units to scratch until the rest fits the budget."""
        while True:
            with self._lock:
                used = sum(unit.ram_bytes for unit in self._units.values())
                oldest = next((key for key, unit in self._units.items() if unit.ram_bytes and key != keep), None)
                if used <= self._budget_bytes or oldest is None:
                    return
                unit = self._units[oldest]
            mapped = _Unit(self._spilled(oldest, unit.array), unit.bad, 0)
            with self._lock:
                if oldest in self._units:
                    self._units[oldest] = mapped


def place_of(source: SourceIndex, unit: int, row: int) -> Place:
    """Return where a delivered row of a unit lies."""
    kept = source.kept_rows(unit)
    raw = row if kept is None else int(kept[row])
    return Place(redact(source.files[source.unit_files[unit]].url), source.first_row_in_file(unit) + raw)


def _scratch_name(key: UnitKey) -> str:
    return f"unit-{key[0]}-{key[1]}.arrow"


def _bad_places(bad: Iterable[BadRecord], rows: npt.NDArray[Any], places: npt.NDArray[Any]) -> list[BadRecord]:
    """Return the bad rows among ``rows``, each at its place."""
    found = []
    for record in bad:
        found += [BadRecord(int(place), record.reason, record.detail) for place in places[rows == record.row]]
    return found
