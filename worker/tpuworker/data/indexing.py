"""One pass over the sources that makes the index: footers, newlines, schemas of all files; all faults at once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tpuworker import arrow
from tpuworker.data.index import Dropped, Index, SourceIndex
from tpuworker.data.job import DataJob
from tpuworker.errors import DataError, Fault, FaultsError, InputError, SpecError
from tpuworker.formats import ENDINGS, FORMATS, FileUnits, Format, format_named
from tpuworker.formats.hub import resolve_hub
from tpuworker.formats.tfds import resolve_tfds
from tpuworker.formats.values import plain_type, unify_types
from tpuworker.spec.data import DataSpec, FilesSource, HubSource, SkipPolicy, Source, TfdsSource
from tpuworker.storage import FileInfo, Storage, redact

#: Judges the wanted column of a unit: (row, reason) of every row that cannot become a training row.
Judge = Callable[[Any], Iterable[tuple[int, str]]]
Result = TypeVar("Result")
_THREADS = 16
_FAULTS_SHOWN = 20


@dataclass(frozen=True)
class Wanted:
    """The column that is read of every file.

    Attributes:
        candidates: Names to look for; the first that exists is taken.
        of_text: Whether it has to hold text.
        hint: What to do where none of them is there.
    """

    candidates: tuple[str, ...]
    of_text: bool
    hint: str

    @classmethod
    def of(cls, data: DataSpec) -> Wanted:
        """Return the column that a task reads."""
        is_text = data.task != "conversation"
        return cls(data.column_candidates, is_text, f"set spec.data.{'text' if is_text else 'conversation'}_column")


@dataclass(frozen=True)
class _Scanned:
    """The files of a source after their own pass."""

    files: tuple[FileInfo, ...]
    formats: tuple[str, ...]
    units: tuple[FileUnits, ...]
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...]


def build_index(
    job: DataJob,
    *,
    storage: Storage | None = None,
    judge: Judge | None = None,
    wanted: Wanted | None = None,
    threads: int = _THREADS,
) -> Index:
    """Return the index of a job's sources.

    Footers and newlines are read, and schemas unified, for every file. Under ``on_bad_record: skip`` and with a filter
    every row is read too, so that the rows left out are known before steps are counted, and are the same on every run.

    Args:
        job: The job.
        storage: How bytes are read; for tests and for retry policies of one's own.
        judge: What else makes a row bad under ``skip``, from the task (roles, templates).
        wanted: The column. Default: what the task reads.
        threads: Files read at the same time.

    Raises:
        InputError: Files that are not there, not what their name says, without the column: every one of them.
        DataError: Bad records under ``fail`` that the files' own statistics tell of, or too many under ``skip``.
    """
    storage, wanted = storage or Storage(), wanted or Wanted.of(job.data)
    instances: dict[str, Format] = {name: kind() for name, kind in FORMATS.items()}
    sources: list[SourceIndex] = []
    faults: list[Fault] = []
    kinds: set[type[FaultsError]] = set()
    with ThreadPoolExecutor(threads, thread_name_prefix="index") as pool:
        for number in range(len(job.data.sources)):
            try:
                sources.append(_Indexer(job.data, number, storage, instances, judge, wanted, pool).index())
            except FaultsError as error:
                faults += error.faults
                kinds.add(type(error))
    if faults:
        raise next(kind for kind in (SpecError, InputError, DataError) if kind in kinds)(faults)
    return Index(tuple(sources))


def _try(action: Callable[[], Result]) -> Result | FaultsError:
    try:
        return action()
    except FaultsError as error:
        return error


@dataclass(frozen=True)
class _Indexer:
    """The work on one source."""

    spec: DataSpec
    number: int
    storage: Storage
    formats: dict[str, Format]
    judge: Judge | None
    wanted: Wanted
    pool: ThreadPoolExecutor

    def index(self) -> SourceIndex:
        source = self.spec.sources[self.number]
        scanned = self._scan(self._files(source))
        column, kind = self._column(scanned)
        self._refuse_nulls(scanned, column)
        return self._judged(
            _assemble(
                number=self.number,
                name=_name(source),
                weight=source.weight,
                scanned=scanned,
                column=column,
                kind=kind,
            )
        )

    @property
    def place(self) -> str:
        return f"spec.data.sources[{self.number}]"

    @property
    def skip_limit(self) -> int:
        policy = self.spec.on_bad_record
        return policy.skip.limit if isinstance(policy, SkipPolicy) else 0

    def _files(self, source: Source) -> list[tuple[FileInfo, str]]:
        """Return the files of a source, each with its format."""
        if isinstance(source, HubSource):
            return resolve_hub(source, self.storage, self.place)
        if isinstance(source, TfdsSource):
            return resolve_tfds(source, self.storage, self.place)
        files = self.storage.resolve(source.patterns)
        if source.format != "auto":
            return [(file, source.format) for file in files]
        endings = f"one of {' '.join(ENDINGS)}, also with .gz or .zst"
        faults = [
            Fault(redact(file.url), "an ending that says no format", endings, "or set format")
            for file in files
            if format_named(file.name) is None
        ]
        if faults:
            raise InputError(_shown(faults))
        return [(file, format_named(file.name) or "") for file in files]

    def _scan(self, pairs: Sequence[tuple[FileInfo, str]]) -> _Scanned:
        faults: list[Fault] = []
        results = list(self.pool.map(lambda pair: _try(lambda: self._units(*pair)), pairs))
        dropped, notes, kept = [], [], []
        for (file, name), result in zip(pairs, results, strict=True):
            if isinstance(result, FaultsError):
                if not self.skip_limit:
                    faults += result.faults
                reason = "; ".join(f"{fault.found}" for fault in result.faults)
                dropped.append(Dropped(redact(file.url), -1, reason))
            else:
                kept.append((file, name, result))
                notes += [] if len(result.rows) else [f"{redact(file.url)} has no rows"]
        if faults:
            raise InputError(_shown(faults))
        if not any(len(units.rows) for _, _, units in kept):
            found = f"{len(pairs)} files without a row" if kept else f"{len(dropped)} files, all of them bad"
            raise InputError([Fault(self.place, found, "rows"), *(Fault(d.file, d.reason, "rows") for d in dropped)])
        return _Scanned(
            files=tuple(file for file, _, _ in kept),
            formats=tuple(name for _, name, _ in kept),
            units=tuple(units for _, _, units in kept),
            dropped=tuple(dropped),
            notes=tuple(notes),
        )

    def _units(self, file: FileInfo, name: str) -> FileUnits:
        if not file.size_bytes:
            hint = "an upload that broke off? Remove it, or set on_bad_record to skip it"
            raise InputError([Fault(redact(file.url), "an empty file", f"a {name} file", hint)])
        return self.formats[name].index(self.storage, file, self.wanted.candidates)

    def _column(self, scanned: _Scanned) -> tuple[str, Any]:
        """Return the column and the type it has in all files, or refuse with the columns that there are."""
        filled = [(file, units) for file, units in zip(scanned.files, scanned.units, strict=True) if len(units.rows)]
        everything = list(dict.fromkeys(name for _, units in filled for name in units.columns.names))
        column = next((name for name in self.wanted.candidates if name in everything), None)
        if column is None:
            wanted = " or ".join(map(repr, self.wanted.candidates))
            found = f"columns {', '.join(everything) or 'none'}"
            raise InputError([Fault(self.place, found, f"a column {wanted}", self.wanted.hint)])
        import pyarrow as pa

        faults, kind = [], pa.null()
        for file, units in filled:
            place = redact(file.url)
            if column not in units.columns.names:
                found = f"columns {', '.join(units.columns.names)}"
                faults.append(Fault(place, found, f"a column {column!r} as in the other files"))
                continue
            joined = unify_types(kind, units.columns.field(column).type)
            if joined is None:
                found = f"{column} of type {units.columns.field(column).type}"
                faults.append(Fault(place, found, f"{plain_type(kind)} as in the files before it"))
            else:
                kind = joined
        if not faults and (refusal := self._type_refusal(column, kind)):
            faults.append(refusal)
        if faults:
            raise InputError(_shown(faults))
        return column, _as_read(kind, of_text=self.wanted.of_text)

    def _type_refusal(self, column: str, kind: Any) -> Fault | None:
        import pyarrow as pa

        text = pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)
        if text or not self.wanted.of_text:
            return None
        return Fault(self.place, f"{column} of type {kind}", "a column of text")

    def _refuse_nulls(self, scanned: _Scanned, column: str) -> None:
        if self.spec.on_bad_record != "fail" or self.spec.filter:
            return
        faults = [
            Fault(redact(file.url), f"{int(nulls):,} rows where {column} is null", "a value in every row", _POLICY_HINT)
            for file, units in zip(scanned.files, scanned.units, strict=True)
            if (nulls := units.nulls[units.nulls > 0].sum())
        ]
        if faults:
            raise DataError(_shown(faults))

    def _judged(self, source: SourceIndex) -> SourceIndex:
        """Return the index without the rows that the filter or the bad-record policy leaves out."""
        keep = None if self.spec.filter is None else load_filter(self.spec.filter)
        if keep is None and not self.skip_limit:
            return source
        verdicts = list(self.pool.map(lambda unit: self._verdict(source, unit, keep), range(source.num_units)))
        dropped = [*source.dropped, *(row for _, _, rows in verdicts for row in rows)]
        if len(dropped) > self.skip_limit:
            limit = Fault(self.place, f"{len(dropped):,} bad records", f"at most {self.skip_limit:,}")
            shown = [Fault(row.place, row.reason, "a sound record") for row in dropped[:_FAULTS_SHOWN]]
            raise DataError([limit, *shown])
        bits = np.concatenate([bits for bits, _, _ in verdicts])
        rows = np.array([int(bits.sum()) for bits, _, _ in verdicts], dtype=np.int64)
        if not rows.any():
            raise InputError([Fault(self.place, "no row that the filter keeps", "some rows")])
        return _without(source, bits, rows, tuple(dropped), sum(filtered for _, filtered, _ in verdicts))

    def _verdict(self, source: SourceIndex, unit: int, keep: Any) -> tuple[Any, int, list[Dropped]]:
        """Return which rows of a unit stay (bool [rows]), how many the filter took, and the bad ones."""
        file = source.files[source.unit_files[unit]]
        reader = self.formats[source.formats[source.unit_files[unit]]]
        span = int(source.unit_starts[unit]), int(source.unit_stops[unit])
        stay = np.ones(int(source.unit_raw_rows[unit]), dtype=bool)
        if keep is not None:
            table = reader.read(self.storage, file, *span, None).table
            stay &= _filtered(keep, table, self.spec.filter or "")
        filtered = len(stay) - int(stay.sum())
        if not self.skip_limit:
            return stay, filtered, []
        decoded = reader.read(self.storage, file, *span, source.schema)
        column = decoded.table.column(0).combine_chunks()
        reasons = {bad.row: bad.reason for bad in decoded.bad}
        reasons |= {int(row): "null" for row in arrow.nulls(column) if int(row) not in reasons}
        if self.judge is not None:
            reasons |= {row: reason for row, reason in self.judge(column) if row not in reasons}
        first = source.first_row_in_file(unit)
        rows = [Dropped(redact(file.url), first + row, reasons[row]) for row in sorted(reasons) if stay[row]]
        stay[list(reasons)] = False
        return stay, filtered, rows


_POLICY_HINT = "set on_bad_record to skip with a limit, or mask"


def _shown(faults: list[Fault]) -> list[Fault]:
    rest = len(faults) - _FAULTS_SHOWN
    return faults if rest <= 0 else [*faults[:_FAULTS_SHOWN], Fault("and more", f"{rest} faults of this kind", "none")]


def _name(source: Source) -> str:
    if isinstance(source, FilesSource):
        return redact(", ".join(source.patterns))
    return source.hub if isinstance(source, HubSource) else source.tfds


def _as_read(kind: Any, *, of_text: bool) -> Any:
    """Return the type that units are cast to: text tasks read strings, also where files say binary or nothing."""
    import pyarrow as pa

    return pa.string() if of_text and (pa.types.is_null(kind) or pa.types.is_binary(kind)) else kind


def _assemble(*, number: int, name: str, weight: float, scanned: _Scanned, column: str, kind: Any) -> SourceIndex:
    import pyarrow as pa

    def joined(field: str) -> Any:
        return np.concatenate([getattr(units, field) for units in scanned.units])

    rows = joined("rows")
    return SourceIndex(
        number=number,
        name=name,
        weight=weight,
        files=scanned.files,
        formats=scanned.formats,
        digests=tuple(units.fingerprint for units in scanned.units),
        column=column,
        column_type=pa.schema([(column, kind)]).serialize().to_pybytes(),
        unit_files=np.repeat(np.arange(len(scanned.units)), [len(units.rows) for units in scanned.units]),
        unit_starts=joined("starts"),
        unit_stops=joined("stops"),
        unit_rows=rows,
        unit_raw_rows=rows,
        unit_bytes=joined("sizes_bytes"),
        dropped=scanned.dropped,
        notes=scanned.notes,
    )


def _without(source: SourceIndex, bits: Any, rows: Any, dropped: tuple[Dropped, ...], filtered: int) -> SourceIndex:
    """Return the index with only the kept rows; a unit that lost all of them is no unit any more."""
    stays = rows > 0
    raw_stays = np.repeat(stays, source.unit_raw_rows)
    raw_rows = source.unit_raw_rows[stays]
    return replace(
        source,
        unit_files=source.unit_files[stays],
        unit_starts=source.unit_starts[stays],
        unit_stops=source.unit_stops[stays],
        unit_rows=rows[stays],
        unit_raw_rows=raw_rows,
        unit_bytes=source.unit_bytes[stays] * rows[stays] // np.maximum(1, raw_rows),
        kept=None if bits.all() else np.packbits(bits[raw_stays]),
        dropped=dropped,
        filtered_rows=filtered,
    )


def load_filter(path: str) -> Any:
    """Return the function that ``spec.data.filter`` names.

    Raises:
        SpecError: No such module or function.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        wanted = "the dotted path of a function (pyarrow.Table) -> boolean array"
        raise SpecError([Fault("spec.data.filter", f"{path!r} ({error})", wanted)]) from error


def _filtered(keep: Any, table: Any, path: str) -> Any:
    try:
        answer = np.asarray(keep(table))
    except Exception as error:
        found = f"{path} raised {type(error).__name__}: {error}"
        raise DataError([Fault("spec.data.filter", found, "a boolean array, one value a row")]) from error
    if answer.shape != (table.num_rows,) or answer.dtype != np.bool_:
        found = f"{path} returned {answer.dtype} {list(answer.shape)}"
        raise DataError([Fault("spec.data.filter", found, f"bool [{table.num_rows}]: one value a row, none null")])
    return answer


__all__ = ["Judge", "Wanted", "build_index", "load_filter"]
