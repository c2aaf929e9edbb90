"""JSON lines, plain or compressed: one object a line, units of about 8 MiB of lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.json as pj

from tpuworker.errors import DataError, Fault, InputError
from tpuworker.formats.base import BadRecord, Decoded, FileUnits, int64s
from tpuworker.formats.lines import count_rows, scan
from tpuworker.formats.values import projected, unify_types
from tpuworker.storage import FileInfo, Storage, redact, what_bytes_are

#: Lines of which the names and types of columns are taken, at the start of a unit.
_SAMPLE_LINES = 2000


class JsonlFormat:
    """One JSON object per line. Columns that are not needed are never built, whatever they hold."""

    name: ClassVar[str] = "jsonl"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:  # noqa: ARG002 (types of all)
        """Scan the newlines; types come from the first lines of the file and of its last unit."""
        starts, stops, rows = list[int](), list[int](), list[int]()
        schema, last, checksum = pa.schema([]), b"", [0]
        for span in scan(storage, file, checksum):
            if not span.rows:
                continue
            if not rows:
                _refuse_other_text(span.data, file)
                schema = _sample(span.data)
            starts.append(span.start)
            stops.append(span.stop)
            rows.append(span.rows)
            last = span.data
        if len(rows) > 1:
            schema = _joined(schema, _sample(last))
        return FileUnits(
            starts=int64s(starts),
            stops=int64s(stops),
            rows=int64s(rows),
            sizes_bytes=int64s(stops) - int64s(starts),
            columns=schema,
            fingerprint=f"{checksum[0]:08x}",
            nulls=int64s([-1] * len(rows)),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Parse the lines in [start, stop) of the plain content in the calling thread."""
        data = storage.read_plain(file, start, stop)
        if len(data) != stop - start:
            raise DataError(
                [
                    Fault(
                        redact(file.url), f"{start + len(data):,} bytes", f"at least {stop:,}", "it changed: start anew"
                    )
                ]
            )
        try:
            table = _parse(data, columns)
        except pa.ArrowInvalid:
            return _by_line(data, columns)
        if table.num_rows != count_rows(data):  # two objects on one line: the line is the unit of counting
            return _by_line(data, columns)
        return projected(table, columns)


def _parse(data: bytes, schema: Any | None) -> Any:
    behaviour = "infer" if schema is None else "ignore"
    return pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour),
    )


def _by_line(data: bytes, columns: Any | None) -> Decoded:
    """Parse line by line, since the whole cannot be: the bad lines become null rows with a reason."""
    tables, bad, row = [], [], 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            table = _parse(line, columns)
            reason = "" if table.num_rows == 1 else "several objects on a line"
        except pa.ArrowInvalid as error:
            reason, detail = _why(line, str(error))
        else:
            detail = ""
        if reason:
            bad.append(BadRecord(row, reason, detail))
        tables.append(None if reason else table)
        row += 1
    whole = pa.unify_schemas([table.schema for table in tables if table is not None]) if columns is None else columns
    empty = pa.table([pa.nulls(1, field.type) for field in whole], schema=whole)
    table = pa.concat_tables([empty if each is None else each for each in tables], promote_options="permissive")
    return projected(table, columns, bad)


def _why(line: bytes, message: str) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        return "invalid UTF-8", str(error)
    except ValueError as error:
        return "invalid JSON", str(error)
    if not isinstance(value, dict):
        return "not a JSON object", type(value).__name__
    return "wrong type", " ".join(message.split())


def _refuse_other_text(data: bytes, file: FileInfo) -> None:
    head = data.lstrip()[:32]
    if head.startswith(b"{"):
        return
    hint = "write one object a line: jq -c '.[]' FILE" if head.startswith(b"[") else ""
    raise InputError([Fault(redact(file.url), what_bytes_are(head), "JSON lines: one object a line", hint)])


def _sample(data: bytes) -> Any:
    """Return the columns of a unit's first lines; null stands for a type that they do not agree on."""
    lines = data.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    try:
        return _parse(b"\n".join(lines), None).schema
    except pa.ArrowInvalid:
        names: dict[str, None] = {}
        for line in lines:
            try:
                names |= dict.fromkeys(json.loads(line))
            except (ValueError, TypeError):
                continue  # a bad record: the policy for them judges it when its unit is read
        return pa.schema([(name, pa.null()) for name in names])


def _joined(first: Any, second: Any) -> Any:
    types = {field.name: field.type for field in first}
    for field in second:
        known = types.get(field.name, pa.null())
        types[field.name] = unify_types(known, field.type) or pa.null()
    return pa.schema(list(types.items()))
