"""Files and rows that are not what they should be: named, with what was found, and never half read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.formats.corpora import jsonl
from tpuworker.errors import InputError
from tpuworker.formats import FORMATS, format_named
from tpuworker.storage import Storage

SCHEMA = pa.schema([("text", pa.string())])
PARQUET = pa.BufferOutputStream()
pq.write_table(pa.table({"text": ["a"] * 1000}), PARQUET)
PARQUET_BYTES = PARQUET.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.parquet", jsonl(), "JSON text"),
        ("a.parquet", b"<!DOCTYPE html><html>", "a web page"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer"),
        ("a.parquet", PARQUET_BYTES[:-40], "cut off"),
        ("a.parquet", b"PAR1" + b"\0" * 40 + b"PAR1", "a footer that cannot be read"),
        ("a.jsonl", PARQUET_BYTES, "a parquet file"),
        ("a.jsonl", gzip.compress(jsonl()), "gzip data"),
        ("a.jsonl", b'[{"text": "a"}]', "a JSON array"),
        ("a.jsonl", b"text\na\n", "plain text"),
        ("a.jsonl.gz", jsonl(), "JSON text"),
        ("a.jsonl.gz", gzip.compress(jsonl())[:150], "cut off at byte 150"),
        ("a.jsonl.zst", zstandard.compress(jsonl())[:80], "cut off at byte 80"),
        ("a.jsonl.gz", gzip.compress(jsonl())[:-8] + b"\0" * 8, "damaged gz data"),
        ("a.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 40, "damaged zst data"),
        ("a.arrow", PARQUET_BYTES, "a parquet file"),
        ("a.arrow", b"ARROW1\0\0" + b"\0" * 60, "cannot be read"),
        ("a.txt", b"\x89PNG\r\n\x1a\n\0\0\0\r", "a PNG image"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_named_with_what_it_is(
    name: str, content: bytes, found: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    reader = FORMATS[format_named(name) or ""]()
    with pytest.raises(InputError) as refused:
        reader.index(Storage(), Storage().info(str(tmp_path / name)), ["text"])
    assert found in str(refused.value)
    assert str(tmp_path / name) in str(refused.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "b"', "invalid JSON"),
        (b'{"text": "b"} tail', "invalid JSON"),
        (b'{"text": 7}', "wrong type"),
        (b'{"text": ["b"]}', "wrong type"),
        (b'["b"]', "not a JSON object"),
        (b'{"text": "b"}{"text": "c"}', "several objects on a line"),
        (b'{"text": "\xff\xfe"}', "invalid UTF-8"),
        (b'{"text": "\\ud800"}', "wrong type"),
    ],
)
def test_a_bad_line_becomes_null_with_a_reason_and_its_neighbours_stay(
    line: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n' + line + b'\n\n{"text": "c", "new": {"x": 1}}\n')
    reader = FORMATS["jsonl"]()
    file = Storage().info(str(path))
    units = reader.index(Storage(), file, ["text"])
    decoded = reader.read(Storage(), file, int(units.starts[0]), int(units.stops[0]), SCHEMA)
    assert decoded.table.column("text").to_pylist() == ["a", None, "c"]
    assert [(bad.row, bad.reason) for bad in decoded.bad] == [(1, reason)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.txt"])
def test_invalid_utf8_becomes_null_with_a_reason(name: str, tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"\xff\xfe", b"too"], pa.binary())
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    table = pa.table({"text": broken})
    path = tmp_path / name
    if name == "a.txt":
        path.write_bytes(b"fine\n\xff\xfe\ntoo\n")
    elif name == "a.parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    reader = FORMATS[format_named(name) or ""]()
    file = Storage().info(str(path))
    units = reader.index(Storage(), file, ["text"])
    decoded = reader.read(Storage(), file, int(units.starts[0]), int(units.stops[0]), SCHEMA)
    assert decoded.table.column("text").to_pylist() == ["fine", None, "too"]
    assert [(bad.row, bad.reason) for bad in decoded.bad] == [(1, "invalid UTF-8")]


def test_columns_that_are_not_needed_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"meta": 1, "text": "a"}\n{"meta": {"deep": []}, "text": "b", "more": null}\n')
    reader = FORMATS["jsonl"]()
    file = Storage().info(str(path))
    units = reader.index(Storage(), file, ["text"])
    decoded = reader.read(Storage(), file, int(units.starts[0]), int(units.stops[0]), SCHEMA)
    assert decoded.table.to_pydict() == {"text": ["a", "b"]}
    assert not decoded.bad
