"""Parquet: one unit per row group; the index reads footers only."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tpuworker.errors import DataError, Fault, InputError
from tpuworker.formats.base import Decoded, FileUnits, int64s
from tpuworker.formats.values import projected
from tpuworker.storage import FileInfo, Storage, in_one_line, redact, what_bytes_are

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
#: Most footers fit, so that a remote file costs one request.
_TAIL_BYTES = 256 << 10
_FOOTERS_KEPT = 64


class ParquetFormat:
    """Parquet through ``ParquetFile``: the dataset scanner of Arrow keeps memory while it iterates (arrow#39808)."""

    name: ClassVar[str] = "parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def __init__(self) -> None:
        self._footers: OrderedDict[tuple[str, int, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:
        """Return the row groups; empty ones are left out."""
        with storage.open(file, buffer_bytes=_TAIL_BYTES) as stream:
            digest = _footer_digest(stream, file)
            metadata, schema = _parse(stream, file)
        groups = [metadata.row_group(ordinal) for ordinal in range(metadata.num_row_groups)]
        column = next((name for name in wanted if name in schema.names), None)
        full = [ordinal for ordinal, group in enumerate(groups) if group.num_rows]
        measured = [_measure(groups[ordinal], column) for ordinal in full]
        return FileUnits(
            starts=int64s(full),
            stops=int64s([ordinal + 1 for ordinal in full]),
            rows=int64s([groups[ordinal].num_rows for ordinal in full]),
            sizes_bytes=int64s([size for size, _ in measured]),
            columns=schema,
            fingerprint=digest,
            nulls=int64s([nulls for _, nulls in measured]),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Decode row groups [start, stop) in the calling thread."""
        footer = self._footer(storage, file)
        path = storage.local_path(file)
        source = pa.memory_map(path) if path else storage.open(file, buffer_bytes=_TAIL_BYTES)
        with source, pq.ParquetFile(source, metadata=footer) as reader:
            if stop > reader.num_row_groups:
                raise _changed(file, f"{reader.num_row_groups} row groups", f"at least {stop}")
            try:
                names = None if columns is None else columns.names
                table = reader.read_row_groups(list(range(start, stop)), columns=names, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    [
                        Fault(
                            redact(file.url), f"row group {start} cannot be decoded: {in_one_line(error)}", "sound data"
                        )
                    ]
                ) from error
        return projected(table, columns)

    def _footer(self, storage: Storage, file: FileInfo) -> Any:
        key = (file.url, file.size_bytes, file.version)
        with self._lock:
            if key in self._footers:
                self._footers.move_to_end(key)
                return self._footers[key]
        with storage.open(file, buffer_bytes=_TAIL_BYTES) as stream:
            footer, _ = _parse(stream, file)
        with self._lock:
            self._footers[key] = footer
            if len(self._footers) > _FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return footer


def _footer_digest(stream: BinaryIO, file: FileInfo) -> str:
    """Return the digest of the footer: it holds sizes, offsets and statistics of every column of every row group."""
    place = redact(file.url)
    stream.seek(max(0, file.size_bytes - _TAIL_BYTES))
    tail = stream.read(_TAIL_BYTES)
    if tail.endswith(_ENCRYPTED_MAGIC):
        raise InputError([Fault(place, "an encrypted parquet file", "a plain one")])
    if len(tail) < 12 or not tail.endswith(_MAGIC):
        stream.seek(0)
        head = stream.read(32)
        cut = head.startswith(_MAGIC)
        found = "a parquet file that was cut off: no footer" if cut else what_bytes_are(head)
        raise InputError([Fault(place, found, "a parquet file, as its name says")])
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        stream.seek(max(0, file.size_bytes - length))
        tail = stream.read(length)
    return hashlib.sha256(tail[-length:]).hexdigest()[:16]


def _parse(stream: BinaryIO, file: FileInfo) -> tuple[Any, Any]:
    try:
        with pq.ParquetFile(stream) as reader:
            return reader.metadata, reader.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            [Fault(redact(file.url), f"a footer that cannot be read: {in_one_line(error)}", "a parquet file")]
        ) from error


def _measure(group: Any, column: str | None) -> tuple[int, int]:
    """Return decoded bytes and nulls (-1: unknown) of a column in a row group."""
    if column is None:
        return group.total_byte_size, -1
    size, nulls, leaves = 0, -1, 0
    for ordinal in range(group.num_columns):
        chunk = group.column(ordinal)
        if chunk.path_in_schema.split(".", 1)[0] == column:
            size += chunk.total_uncompressed_size
            leaves += 1
            statistics = chunk.statistics
            nulls = statistics.null_count if statistics is not None and statistics.has_null_count else -1
    return size, nulls if leaves == 1 else -1


def _changed(file: FileInfo, found: str, wanted: str) -> DataError:
    return DataError([Fault(redact(file.url), found, wanted, "it changed since it was indexed: start the job anew")])
