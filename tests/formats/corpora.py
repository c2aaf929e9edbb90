"""The same twelve rows in every format, and how to write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import feather

TEXTS = [f"row {number}: Grüße, 世界 \U0001f680" for number in range(12)]
TABLE = pa.table({"id": list(range(12)), "text": TEXTS})


def jsonl(texts: list[str] = TEXTS) -> bytes:
    return b"".join(json.dumps({"id": n, "text": text}).encode() + b"\n" for n, text in enumerate(texts))


def _stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=5)


def _file(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=5)


def _dictionary_stream(path: Path) -> None:
    coded = pa.table({"text": pa.array(TEXTS).dictionary_encode()})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, coded.schema) as writer:
        writer.write_table(coded, max_chunksize=5)


def _large_strings(path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array(TEXTS, pa.large_string())}), path, row_group_size=5)


#: Name of the case: file name, and what writes it.
WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "parquet": ("a.parquet", lambda path: pq.write_table(TABLE, path, row_group_size=5)),
    "parquet of large strings": ("a.parquet", _large_strings),
    "parquet with a dictionary": (
        "a.parquet",
        lambda path: pq.write_table(pa.table({"text": pa.array(TEXTS).dictionary_encode()}), path),
    ),
    "jsonl": ("a.jsonl", lambda path: path.write_bytes(jsonl())),
    "jsonl without a last newline": ("a.jsonl", lambda path: path.write_bytes(jsonl().rstrip())),
    "jsonl with blank lines and carriage returns": (
        "a.json",
        lambda path: path.write_bytes(b"\n \n" + jsonl().replace(b"\n", b"\r\n\r\n")),
    ),
    "jsonl with a byte order mark": ("a.ndjson", lambda path: path.write_bytes(b"\xef\xbb\xbf" + jsonl())),
    "jsonl.gz": ("a.jsonl.gz", lambda path: path.write_bytes(gzip.compress(jsonl()))),
    "jsonl.gz of two members": (
        "a.jsonl.gz",
        lambda path: path.write_bytes(gzip.compress(jsonl()[:100]) + gzip.compress(jsonl()[100:])),
    ),
    "jsonl.zst": ("a.jsonl.zst", lambda path: path.write_bytes(zstandard.compress(jsonl()))),
    "jsonl.zst of two frames": (
        "a.jsonl.zst",
        lambda path: path.write_bytes(zstandard.compress(jsonl()[:100]) + zstandard.compress(jsonl()[100:])),
    ),
    "arrow file": ("a.arrow", _file),
    "arrow stream": ("a.arrow", _stream),
    "arrow stream with a dictionary": ("a.arrow", _dictionary_stream),
    "feather": ("a.feather", lambda path: feather.write_feather(TABLE, path, compression="lz4", chunksize=5)),
    "text": ("a.txt", lambda path: path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")),
    "text with blank lines": ("a.txt", lambda path: path.write_text("\n  \n" + "\r\n\n".join(TEXTS), encoding="utf-8")),
    "text.zst": ("a.txt.zst", lambda path: path.write_bytes(zstandard.compress("\n".join(TEXTS).encode()))),
}
