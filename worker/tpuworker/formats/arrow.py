"""Arrow IPC, file or stream form: one unit per record batch, mapped where the file is local."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tpuworker.errors import DataError, Fault, InputError
from tpuworker.formats.base import Decoded, FileUnits, int64s, sampled_digest
from tpuworker.formats.values import projected
from tpuworker.storage import FileInfo, Storage, in_one_line, redact, what_bytes_are

_FILE_MAGIC = b"ARROW1"
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_WHOLE_STREAM = -1


class ArrowFormat:
    """Arrow files (``.feather`` v2 included) and streams, which is how ``datasets`` caches.

    A batch of the file form is entered by its number, one of the stream form by its byte. A stream with dictionary
    columns cannot be entered in the middle, so it is one unit.
    """

    name: ClassVar[str] = "arrow"
    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:
        """Read the metadata of every batch; a remote file is read through once, since its footer is not exposed."""
        with self._source(storage, file) as source:
            head = source.read(8)
            source.seek(0)
            try:
                if head.startswith(_FILE_MAGIC):
                    starts, stops, rows, sizes, nulls, schema = _index_file(source, wanted)
                elif head.startswith(_STREAM_MAGIC):
                    starts, stops, rows, sizes, nulls, schema = _index_stream(source, wanted)
                else:
                    raise InputError([Fault(redact(file.url), what_bytes_are(head), "an Arrow IPC file or stream")])
            except (pa.ArrowException, OSError) as error:
                found = f"Arrow data that cannot be read: {in_one_line(error)}"
                raise InputError([Fault(redact(file.url), found, "a whole Arrow IPC file")]) from error
        return FileUnits(
            starts=int64s(starts),
            stops=int64s(stops),
            rows=int64s(rows),
            sizes_bytes=int64s(sizes),
            columns=schema,
            fingerprint=sampled_digest(storage, file),
            nulls=int64s(nulls),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return one batch; its values stay in the mapped file where that is local."""
        with self._source(storage, file) as source:
            try:
                table = _read_unit(source, start, stop)
            except (pa.ArrowException, OSError, IndexError) as error:
                raise DataError(
                    [Fault(redact(file.url), in_one_line(error), f"record batch {start}", "it changed: start anew")]
                ) from error
        return projected(table, columns)

    @staticmethod
    def _source(storage: Storage, file: FileInfo) -> Any:
        path = storage.local_path(file)
        return pa.memory_map(path) if path else pa.PythonFile(storage.open(file), mode="r")


def _read_unit(source: Any, start: int, stop: int) -> Any:
    if source.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
        source.seek(0)
        reader = pa.ipc.open_file(source)
        return pa.Table.from_batches([reader.get_batch(ordinal) for ordinal in range(start, stop)], reader.schema)
    source.seek(0)
    if start == _WHOLE_STREAM:
        return pa.ipc.open_stream(source).read_all()
    schema = pa.ipc.read_schema(source)
    source.seek(start)
    batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
    return pa.Table.from_batches([batch])


def _sizes(batch: Any, wanted: Sequence[str]) -> tuple[int, int]:
    name = next((name for name in wanted if name in batch.schema.names), None)
    if name is None:
        return batch.nbytes, -1
    column = batch.column(name)
    return column.nbytes, column.null_count


def _index_file(source: Any, wanted: Sequence[str]) -> Any:
    reader = pa.ipc.open_file(source)
    ordinals, rows, sizes, nulls = [], [], [], []
    for ordinal in range(reader.num_record_batches):
        batch = reader.get_batch(ordinal)
        if batch.num_rows:
            size, null_count = _sizes(batch, wanted)
            ordinals.append(ordinal)
            rows.append(batch.num_rows)
            sizes.append(size)
            nulls.append(null_count)
    return ordinals, [ordinal + 1 for ordinal in ordinals], rows, sizes, nulls, reader.schema


def _index_stream(source: Any, wanted: Sequence[str]) -> Any:
    schema = pa.ipc.read_schema(source)
    if any(pa.types.is_dictionary(field.type) for field in schema):
        source.seek(0)
        table = pa.ipc.open_stream(source).read_all()
        if not table.num_rows:
            return [], [], [], [], [], schema
        size, null_count = _sizes(table, wanted)
        return [_WHOLE_STREAM], [0], [table.num_rows], [size], [null_count], schema
    starts, stops, rows, sizes, nulls = [], [], [], [], []
    while True:
        start = source.tell()
        try:
            message = pa.ipc.read_message(source)
        except EOFError:
            break
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows:
            size, null_count = _sizes(batch, wanted)
            starts.append(start)
            stops.append(source.tell())
            rows.append(batch.num_rows)
            sizes.append(size)
            nulls.append(null_count)
    return starts, stops, rows, sizes, nulls, schema
