"""Prepared TFDS datasets: array_record and tfrecord, without TensorFlow; versions, splits, what is not there."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.data.builders import data_job, global_batches
from tests.storage.servers import serve
from tpuworker.data.indexing import build_index
from tpuworker.errors import InputError


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(**features: Any) -> bytes:
    """Encode a tf.train.Example as the protocol buffers' documentation has it."""
    entries = b""
    for key, value in features.items():
        feature = field(1, field(1, value)) if isinstance(value, bytes) else field(3, field(1, varint(value % 2**64)))
        entries += field(1, field(1, key.encode()) + field(2, feature))
    return field(1, entries)


def write(path: Path, kind: str, records: list[bytes]) -> None:
    if kind == "tfrecord":
        path.write_bytes(b"".join(struct.pack("<QI", len(r), 0) + r + b"\0\0\0\0" for r in records))
        return
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def prepare(
    root: Path, kind: str, *, version: str = "1.0.0", shards: tuple[int, ...] = (1500, 3, 597)
) -> dict[str, Any]:
    directory = root / "prose" / version
    directory.mkdir(parents=True)
    first = 0
    for shard, rows in enumerate(shards):
        records = [example(id=-n, text=b"r%06d" % n) for n in range(first, first + rows)]
        write(directory / f"prose-train.{kind}-{shard:05d}-of-{len(shards):05d}", kind, records)
        first += rows
    split = {"name": "train", "shardLengths": [str(rows) for rows in shards]}
    told = {"name": "prose", "version": version, "fileFormat": kind, "splits": [split]}
    (directory / "dataset_info.json").write_text(json.dumps(told))
    return {"tfds": "prose", "data_dir": str(root)}


KINDS = ["array_record", "tfrecord"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_comes_once(kind: str, tmp_path: Path) -> None:
    job = data_job([prepare(tmp_path, kind)], batch=20, hosts=4)
    index = build_index(job)
    assert [rows.tolist() for rows in (index.sources[0].unit_rows,)] == [[1024, 476, 3, 597]]
    rows = [n for batch in global_batches(job, index) for n in batch]
    assert sorted(rows) == list(range(2100))  # type: ignore[type-var]


def positive(table: Any) -> Any:
    import pyarrow.compute as pc

    return pc.greater(table["id"], -10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_sees_numbers_with_their_sign(kind: str, tmp_path: Path) -> None:
    job = data_job([prepare(tmp_path, kind)], filter=f"{__name__}.positive", batch=2)
    assert build_index(job).num_rows == 10


def test_the_newest_version_is_taken_or_the_one_that_is_named(tmp_path: Path) -> None:
    prepare(tmp_path, "tfrecord", version="9.0.0", shards=(30,))
    source = prepare(tmp_path, "tfrecord", version="10.0.0", shards=(40,))
    assert build_index(data_job([source])).num_rows == 40
    assert build_index(data_job([source | {"tfds": "prose:9.0.0"}])).num_rows == 30


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tfds": "verse"}, "nothing prepared under"),
        ({"tfds": "prose:2.0.0"}, "versions 1.0.0; wanted version 2.0.0"),
        ({"split": "test"}, "split: found 'test'; wanted one of train"),
    ],
)
def test_what_was_not_prepared_is_refused(change: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        build_index(data_job([prepare(tmp_path, "tfrecord") | change]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_off_is_named(kind: str, tmp_path: Path) -> None:
    source = prepare(tmp_path, kind)
    (path,) = tmp_path.glob("prose/*/*-00001-of-00003")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="00001-of-00003: found a"):
        build_index(data_job([source]))


@pytest.mark.parametrize("kind", KINDS)
def test_record_files_can_be_read_from_a_server(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    write(path, kind, [example(text=b"r%06d" % n) for n in range(40)])
    with serve({f"/a.{kind}": path.read_bytes()}) as address:
        rows = [n for batch in global_batches(data_job(f"{address}/a.{kind}")) for n in batch]
    assert sorted(rows) == list(range(40))  # type: ignore[type-var]
