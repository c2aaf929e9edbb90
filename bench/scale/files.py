"""Index and listing over 1 to 100,000 files: local ones (links to one file), and objects of a server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.machine import resident_bytes
from bench.scale import Point, point
from bench.scale.listing import serve_objects

SIZES = (1, 10, 100, 1_000, 10_000, 100_000)
_ROWS_PER_FILE = 20
_PANEL = "Files in the index"
_MOST_LINKS = 30_000
_CHILD = "import sys; from bench.scale.files import child; child(sys.argv[1])"


def measure() -> Iterator[Point]:
    """Yield seconds and memory of the index, and seconds of a listing, for each number of files."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as directory:
            _make(Path(directory), size)
            # A fresh process, so that the memory is that of this index alone.
            done = subprocess.run([sys.executable, "-c", _CHILD, directory], check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        yield point(_PANEL, "local parquet: seconds", size, found["seconds"])
        yield point(_PANEL, "local parquet: MB of RAM", size, found["bytes"] / 1e6)
        yield point(_PANEL, "as JSON to the other hosts: kB", size, found["json_bytes"] / 1e3)
    # Whether a bucket is of the zonal kind is asked over gRPC with TLS, which only the real service answers.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    with serve_objects(1) as endpoint:
        _listing_seconds(endpoint, 1)  # the imports of the file system are no part of a listing
    for size in SIZES:
        with serve_objects(size) as endpoint:
            yield point(_PANEL, "listing of gs:// objects: seconds", size, _listing_seconds(endpoint, size))


def child(directory: str) -> None:
    """Build the index of a directory and print what it took."""
    import pyarrow.parquet  # noqa: F401  # its import is no part of the index

    from tpuworker.data.indexing import build_index

    before = resident_bytes()
    started = time.perf_counter()
    index = build_index(_job(f"{directory}/*.parquet"))
    seconds = time.perf_counter() - started
    grown = resident_bytes() - before
    print(json.dumps({"seconds": seconds, "bytes": grown, "json_bytes": len(index.to_bytes())}))


def _listing_seconds(endpoint: str, size: int) -> float:
    from tpuworker.storage import Storage

    storage = Storage(options={"gs": {"endpoint_url": endpoint, "token": "anon"}})
    started = time.perf_counter()
    found = storage.resolve(("gs://bench/part-*.parquet",))
    seconds = time.perf_counter() - started
    if len(found) != size:
        raise RuntimeError(f"the listing has {len(found)} objects, the server {size}")
    return seconds


def _make(directory: Path, count: int) -> None:
    """Write one small parquet file and link it under so many names; a file system bounds the links of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"row {number} of a small file" for number in range(_ROWS_PER_FILE)]
    original = directory / "part-000000.parquet"
    for number in range(count):
        path = directory / f"part-{number:06d}.parquet"
        if number % _MOST_LINKS == 0:
            pq.write_table(pa.table({"text": texts}), path)
            original = path
        else:
            os.link(original, path)


def _job(pattern: str):  # type: ignore[no-untyped-def]  # the worker is imported in the child only
    from bench.scale.jobs import job_over

    return job_over(pattern, global_batch_size=8, num_hosts=1)
