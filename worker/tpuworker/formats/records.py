"""ArrayRecord and TFRecord files of ``tf.train.Example`` records, decoded unit by unit without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tpuworker.errors import DataError, Fault, InputError
from tpuworker.formats.base import Decoded, FileUnits, int64s, sampled_digest
from tpuworker.formats.values import projected
from tpuworker.storage import FileInfo, Storage, in_one_line, redact, what_bytes_are

#: Records of a unit; part of the order's definition.
UNIT_RECORDS = 1024
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
#: Fields of the messages Example, Features, its map entry, Feature and the lists in it, by number.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class ArrayRecordFormat:
    """ArrayRecord files: any record can be entered; a remote file is copied to scratch first."""

    name: ClassVar[str] = "array_record"
    endings: ClassVar[tuple[str, ...]] = (".array_record", ".arrayrecord")

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:  # noqa: ARG002 (sizes unknown)
        """Ask the file for the number of its records, and its first record for the columns."""
        num_records, first = _with_reader(
            storage, file, lambda reader: (reader.num_records(), reader.read(0, 1) if reader.num_records() else [])
        )
        starts = np.arange(0, num_records, UNIT_RECORDS)
        stops = np.minimum(starts + UNIT_RECORDS, num_records)
        return FileUnits(
            starts=starts,
            stops=stops,
            rows=stops - starts,
            sizes_bytes=(stops - starts) * (file.size_bytes // max(1, num_records)),
            columns=_table(first, file).schema,
            fingerprint=sampled_digest(storage, file),
            nulls=np.full(len(starts), -1),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return the records [start, stop)."""
        records = _with_reader(storage, file, lambda reader: reader.read(start, stop))
        return projected(_table(records, file, columns), columns)


class TfRecordFormat:
    """Uncompressed TFRecord files; the index walks over the lengths of all records."""

    name: ClassVar[str] = "tfrecord"
    endings: ClassVar[tuple[str, ...]] = (".tfrecord", ".tfrecords")

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:  # noqa: ARG002 (sizes unknown)
        """Walk over the lengths of all records."""
        offsets, first = [0], b""
        with storage.open(file) as stream:
            while head := stream.read(_HEADER.size):
                length = _HEADER.unpack(head)[0] if len(head) == _HEADER.size else 1 << 62
                end = offsets[-1] + _HEADER.size + length + _FOOTER_BYTES
                if end > file.size_bytes:
                    raise InputError([_cut(file, offsets[-1], head)])
                if len(offsets) == 1:
                    first = stream.read(length)
                stream.seek(end)
                offsets.append(end)
        edges = np.append(np.arange(0, len(offsets) - 1, UNIT_RECORDS), len(offsets) - 1)
        places = int64s(offsets)[edges]
        return FileUnits(
            starts=places[:-1],
            stops=places[1:],
            rows=np.diff(edges),
            sizes_bytes=np.diff(places),
            columns=_table([first] if len(offsets) > 1 else [], file).schema,
            fingerprint=sampled_digest(storage, file),
            nulls=np.full(len(edges) - 1, -1),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return the records in the bytes [start, stop)."""
        data = storage.read(file, start, stop)
        records, place = [], 0
        while place < len(data):
            length = _HEADER.unpack_from(data, place)[0]
            records.append(data[place + _HEADER.size : place + _HEADER.size + length])
            place += _HEADER.size + length + _FOOTER_BYTES
        return projected(_table(records, file, columns), columns)


def _cut(file: FileInfo, offset: int, head: bytes) -> Fault:
    found = f"a record that is cut off at byte {offset:,}" if offset else what_bytes_are(head)
    return Fault(redact(file.url), found, "a whole TFRecord file, not compressed")


def _with_reader(storage: Storage, file: FileInfo, use: Callable[[Any], Any]) -> Any:
    """Return what ``use`` makes of the library's reader."""
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        hint = "install the extra: tpulaunch[tfds]"
        raise InputError([Fault(redact(file.url), "no array_record library", "one that reads it", hint)]) from error

    def opened(path: Path) -> Any:
        try:
            reader = array_record_module.ArrayRecordReader(str(path))
            try:
                return use(reader)
            finally:
                reader.close()
        except (RuntimeError, ValueError, IndexError) as error:
            found = f"an ArrayRecord file that cannot be read: {in_one_line(error)}"
            raise InputError([Fault(redact(file.url), found, "a whole one")]) from error

    path = storage.local_path(file)
    if path is not None:
        return opened(Path(path))
    return storage.use_copy(file, opened)


def _table(records: Sequence[bytes], file: FileInfo, columns: Any | None = None) -> Any:
    """Return records as a table with the wanted columns, or all; a feature of one value is a value, else a list."""
    names = None if columns is None else frozenset(columns.names)
    try:
        rows = [dict(_features(record, names)) for record in records]
    except (IndexError, struct.error, ValueError) as error:
        raise DataError([Fault(redact(file.url), "a record that is no tf.train.Example", "Examples")]) from error
    keys = list(dict.fromkeys(key for row in rows for key in row)) if columns is None else columns.names
    return pa.table({key: _column([row.get(key) for row in rows]) for key in sorted(keys)})


def _column(values: list[list[Any] | None]) -> Any:
    if all(value is None or len(value) <= 1 for value in values):
        return pa.array([value[0] if value else None for value in values])
    return pa.array(values)


def _features(record: bytes, names: frozenset[str] | None) -> Iterator[tuple[str, list[Any]]]:
    for _, _, features in _fields(memoryview(record)):
        for _, _, entry in _fields(features):
            parts = {number: value for number, _, value in _fields(entry)}
            key = bytes(parts[1]).decode()
            if names is None or key in names:
                yield key, _values(parts.get(2, memoryview(b"")))


def _values(feature: memoryview) -> list[Any]:
    for kind, _, content in _fields(feature):
        if kind == _BYTES_LIST:
            return [bytes(value) for _, _, value in _fields(content)]
        found: list[Any] = []
        for _, wire, value in _fields(content):
            if kind == _FLOAT_LIST:
                found += np.frombuffer(value, dtype="<f4").tolist()
            elif wire == _VARINT:
                found.append(_signed(value))
            else:
                place = 0
                while place < len(value):
                    number, place = _varint(value, place)
                    found.append(_signed(number))
        return found
    return []


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field of a message, in protocol buffers' encoding."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == _VARINT:
            value, place = _varint(data, place)
            yield tag >> 3, wire, value
            continue
        if wire == _LENGTH:
            size, place = _varint(data, place)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if place + size > len(data):
            raise IndexError(place + size)
        yield tag >> 3, wire, data[place : place + size]
        place += size
