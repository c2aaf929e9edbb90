"""The index: every file, unit, row and column of the sources, known before a device is touched."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuworker.storage import FileInfo

INDEX_FORMAT = 1
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dropped:
    """A row, or a whole file, that the index leaves out.

    Attributes:
        file: URL.
        row: Row of the file, from 0; -1 for the whole file.
        reason: Why.
    """

    file: str
    row: int
    reason: str

    @property
    def place(self) -> str:
        """File and row (from 1, as editors count) in words."""
        return self.file if self.row < 0 else f"{self.file}, row {self.row + 1}"


@dataclass(frozen=True)
class SourceIndex:
    """One source of the spec.

    Attributes:
        number: Its place in ``spec.data.sources``.
        name: How the spec calls it, for people.
        weight: Its weight in a mixture.
        files: The files in the order of their names.
        formats: Format of each file.
        digests: Fingerprint of each file's content.
        column: The column that is read.
        column_type: Its Arrow type over all files, as a serialised schema of one field.
        unit_files: File of each unit, int64 [units].
        unit_starts: As the format has them, int64 [units].
        unit_stops: As the format has them, int64 [units].
        unit_rows: Rows that are delivered, int64 [units], none of them 0.
        unit_raw_rows: Rows that the file holds, int64 [units].
        unit_bytes: Decoded bytes of the column, int64 [units].
        kept: Bits, one for each raw row in order, packed; None if all rows are delivered.
        dropped: Rows and files left out as bad, at most as many as the spec allows.
        filtered_rows: Rows that the filter left out.
        notes: What a person should know, such as files without rows.
    """

    number: int
    name: str
    weight: float
    files: tuple[FileInfo, ...]
    formats: tuple[str, ...]
    digests: tuple[str, ...]
    column: str
    column_type: bytes
    unit_files: Int64s
    unit_starts: Int64s
    unit_stops: Int64s
    unit_rows: Int64s
    unit_raw_rows: Int64s
    unit_bytes: Int64s
    kept: npt.NDArray[np.uint8] | None = None
    dropped: tuple[Dropped, ...] = ()
    filtered_rows: int = 0
    notes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows that are delivered in an epoch of this source, before any remainder."""
        return int(self.unit_rows.sum())

    @property
    def num_units(self) -> int:
        """Units with rows."""
        return len(self.unit_rows)

    @property
    def schema(self) -> Any:
        """``pyarrow.Schema`` of the one column that is read."""
        import pyarrow as pa

        return pa.ipc.read_schema(pa.BufferReader(self.column_type))

    @property
    def fingerprint(self) -> str:
        """Digest of names, contents and the rows left out; not of where the files lie, so a copy is the same data."""
        digest = hashlib.sha256(self.column.encode())
        for file, content in zip(self.files, self.digests, strict=True):
            digest.update(f"\0{file.name}\0{content}".encode())
        digest.update(b"" if self.kept is None else self.kept.tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def raw_starts(self) -> Int64s:
        """First raw row of each unit, counted over the whole source, int64 [units]."""
        return np.cumsum(self.unit_raw_rows) - self.unit_raw_rows

    def first_row_in_file(self, unit: int) -> int:
        """Return the row of its file with which a unit begins, from 0, for messages."""
        first_unit = int(np.searchsorted(self.unit_files, self.unit_files[unit]))
        return int(self.raw_starts[unit] - self.raw_starts[first_unit])

    def kept_rows(self, unit: int) -> Int64s | None:
        """Return the raw rows of a unit that are delivered, ascending, or None for all of them."""
        if self.kept is None or self.unit_rows[unit] == self.unit_raw_rows[unit]:
            return None
        start = int(self.raw_starts[unit])
        stop = start + int(self.unit_raw_rows[unit])
        bits = np.unpackbits(self.kept[start // 8 : -(-stop // 8)])[start % 8 :][: stop - start]
        return np.flatnonzero(bits)


@dataclass(frozen=True)
class Index:
    """All sources of a job.

    Attributes:
        sources: In the order of the spec.
        lengths: Tokens of every document of each source in file order, int32 [rows], 0 for bad ones; only where
            documents are packed exactly, see :mod:`tpuworker.data.measuring`.
        window_rows: Packed rows of every window of documents of each source, int64 [windows]; with ``lengths``.
    """

    sources: tuple[SourceIndex, ...]
    lengths: tuple[npt.NDArray[np.int32], ...] = ()
    window_rows: tuple[Int64s, ...] = ()

    @cached_property
    def ordered(self) -> Index:
        """What the order runs over: this index, or one whose units are windows of documents, and rows packed rows."""
        if not self.lengths:
            return self
        pairs = zip(self.sources, self.window_rows, strict=True)
        return Index(tuple(_packed(source, rows) for source, rows in pairs))

    @property
    def num_rows(self) -> int:
        """Rows of all sources."""
        return sum(source.num_rows for source in self.sources)

    @property
    def num_units(self) -> int:
        """Units of all sources."""
        return sum(source.num_units for source in self.sources)

    @property
    def mean_row_bytes(self) -> float:
        """Decoded bytes of a row of the wanted column, over all sources."""
        return sum(int(source.unit_bytes.sum()) for source in self.sources) / max(1, self.num_rows)

    @property
    def fingerprints(self) -> dict[str, str]:
        """What a cursor remembers of the data: one short text for each source and each thing that can differ."""
        prints = {}
        for source in self.sources:
            key = f"source {source.number}"
            prints[f"{key}: files"] = str(len(source.files))
            prints[f"{key}: rows"] = str(source.num_rows)
            prints[f"{key}: column"] = source.column
            prints[f"{key}: content"] = source.fingerprint
        for number, lengths in enumerate(self.lengths):
            prints[f"source {number}: token counts"] = hashlib.sha256(lengths.tobytes()).hexdigest()[:16]
        return prints

    def to_json(self) -> str:
        """Return the index as one line of JSON, its number arrays compressed."""
        return json.dumps({"format": INDEX_FORMAT, "sources": [_pack(source) for source in self.sources]})

    @classmethod
    def from_json(cls, text: str) -> Index:
        """Return the index that :meth:`to_json` wrote.

        Raises:
            ValueError: Another version of this package wrote it.
        """
        content = json.loads(text)
        if content.get("format") != INDEX_FORMAT:
            raise ValueError(f"an index of format {content.get('format')}, wanted {INDEX_FORMAT}")
        return cls(tuple(_unpack(source) for source in content["sources"]))

    def to_bytes(self) -> bytes:
        """Return the index as the one host that made it hands it to the others."""
        return zlib.compress(self.to_json().encode(), 1)

    @classmethod
    def from_bytes(cls, content: bytes) -> Index:
        """Return the index that :meth:`to_bytes` wrote.

        Raises:
            ValueError: Another version of this package wrote it.
        """
        return cls.from_json(zlib.decompress(content).decode())


def _packed(source: SourceIndex, window_rows: Int64s) -> SourceIndex:
    full = np.flatnonzero(window_rows)
    num_bytes = int(source.unit_bytes.sum()) // max(1, int(window_rows.sum()))
    return replace(
        source,
        unit_files=np.zeros_like(full),
        unit_starts=full,
        unit_stops=full + 1,
        unit_rows=window_rows[full],
        unit_raw_rows=window_rows[full],
        unit_bytes=window_rows[full] * num_bytes,
        kept=None,
    )


_ARRAYS = ("unit_files", "unit_starts", "unit_stops", "unit_rows", "unit_raw_rows", "unit_bytes")


def _pack_array(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 1)).decode("ascii")


def _unpack_array(text: str, dtype: type) -> npt.NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=dtype)


def _pack(source: SourceIndex) -> dict[str, Any]:
    return {
        "number": source.number,
        "name": source.name,
        "weight": source.weight,
        "files": [[file.url, file.size_bytes, file.version] for file in source.files],
        "formats": source.formats,
        "digests": source.digests,
        "column": source.column,
        "column_type": base64.b64encode(source.column_type).decode("ascii"),
        "arrays": {name: _pack_array(getattr(source, name)) for name in _ARRAYS},
        "kept": None if source.kept is None else _pack_array(source.kept),
        "dropped": [[row.file, row.row, row.reason] for row in source.dropped],
        "filtered_rows": source.filtered_rows,
        "notes": source.notes,
    }


def _unpack(content: dict[str, Any]) -> SourceIndex:
    kept = content["kept"]
    return SourceIndex(
        number=content["number"],
        name=content["name"],
        weight=content["weight"],
        files=tuple(FileInfo(*file) for file in content["files"]),
        formats=tuple(content["formats"]),
        digests=tuple(content["digests"]),
        column=content["column"],
        column_type=base64.b64decode(content["column_type"]),
        kept=None if kept is None else _unpack_array(kept, np.uint8),
        dropped=tuple(Dropped(*row) for row in content["dropped"]),
        filtered_rows=content["filtered_rows"],
        notes=tuple(content["notes"]),
        **{name: _unpack_array(content["arrays"][name], np.int64) for name in _ARRAYS},
    )


__all__ = ["INDEX_FORMAT", "Dropped", "Index", "Int64s", "SourceIndex"]
