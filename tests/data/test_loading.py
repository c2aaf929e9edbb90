"""What a training loop meets: fixed shapes, errors where they happen, a first batch at once, a process that ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builders import MAX_LENGTH, BytePipeline, Host, data_job, global_batches, numbers, write_parquet
from tests.tokens.families import corpus
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.errors import DataError, ShapeError


def loader_of(job: Any, pipeline: Any = None, **options: Any) -> Loader:
    return Loader(job, Host(0, 1), build_index(job), pipeline or BytePipeline(), **options)


def test_every_batch_of_every_epoch_has_one_shape(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [33, 10]), batch=8, epochs=2, remainder="mask")
    with loader_of(job) as loader:
        batches = list(loader)
    assert len(batches) == 12
    assert {(a.shape, str(a.dtype)) for b in batches for a in b.arrays.values()} == {((8, MAX_LENGTH), "int32")}
    assert [batch.rows for batch in batches] == [8, 8, 8, 8, 8, 3] * 2
    assert [batch.cursor.step for batch in batches] == list(range(1, 13))


def test_a_row_that_fills_up_the_last_batch_carries_no_loss(tmp_path: Path) -> None:
    with loader_of(data_job(write_parquet(tmp_path, [9]), batch=8, remainder="mask")) as loader:
        last = list(loader)[-1]
    filled = [row for row, number in enumerate(numbers(last.arrays)) if number is None]
    assert len(filled) == 7
    assert (last.arrays["labels"][filled] == -100).all()
    assert not last.bad


def test_files_and_row_groups_fewer_than_hosts_feed_all_of_them(tmp_path: Path) -> None:
    """Input 2 of the loaders study: three files, one of them without a row group, for 16 and 32 hosts."""
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("text", pa.string())])):
        pass  # pq.write_table would write a row group without rows
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 0
    pq.write_table(pa.table({"text": [f"r{n:06d}" for n in range(1000)]}), tmp_path / "b.parquet")
    pq.write_table(
        pa.table({"text": [f"r{n:06d}" for n in range(1000, 1020)]}), tmp_path / "c.parquet", row_group_size=10
    )
    for hosts in (16, 32):
        job = data_job(str(tmp_path / "*.parquet"), batch=32, hosts=hosts, remainder="mask")
        index = build_index(job)
        assert index.sources[0].notes == (f"{tmp_path}/a.parquet has no rows",)
        batches = global_batches(job, index)
        assert len(batches) == 32
        assert sorted(n for batch in batches for n in batch if n is not None) == list(range(1020))


def test_an_error_of_the_pipeline_arrives_after_the_batches_before_it(tmp_path: Path) -> None:
    class Failing(BytePipeline):
        def batch(self, column: Any) -> dict[str, np.ndarray]:
            if "r000040" in column.to_pylist():
                raise DataError([])
            return super().batch(column)

    job = data_job(write_parquet(tmp_path, [64]), batch=8, shuffle={"order": "sequential"})
    loader = loader_of(job, Failing())
    assert [next(loader).step for _ in range(5)] == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(DataError):
            next(loader)


def test_an_error_of_the_reading_thread_arrives_too_and_names_the_file(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [16, 16]), batch=8, shuffle={"order": "sequential"})
    index = build_index(job)
    (tmp_path / "part-001.parquet").unlink()
    loader = Loader(job, Host(0, 1), index, BytePipeline())
    assert [next(loader).step for _ in range(2)] == [0, 1]
    with pytest.raises(DataError, match=r"part-001\.parquet"):
        next(loader)


def test_a_batch_of_another_shape_is_refused(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [16]), batch=8)
    with pytest.raises(ShapeError, match=r"input_ids: found int32 \[8, 9\]; wanted int32 \[8, 16\]"):
        next(loader_of(job, BytePipeline(max_length=9)))


def test_the_first_batch_waits_for_no_other(tmp_path: Path) -> None:
    gate = threading.Event()

    class Slow(BytePipeline):
        calls = 0

        def batch(self, column: Any) -> dict[str, np.ndarray]:
            type(self).calls += 1
            if type(self).calls > 1:
                gate.wait(60)
            return super().batch(column)

    with loader_of(data_job(write_parquet(tmp_path, [64]), batch=8), Slow(), threads=1) as loader:
        assert next(loader).step == 0
        assert not gate.is_set()
        gate.set()


def test_the_queue_bounds_what_is_made_ahead(tmp_path: Path) -> None:
    made = threading.Semaphore(0)

    class Counting(BytePipeline):
        def batch(self, column: Any) -> dict[str, np.ndarray]:
            made.release()
            return super().batch(column)

    with loader_of(data_job(write_parquet(tmp_path, [800]), batch=8), Counting(), depth=3, threads=1) as loader:
        next(loader)
        for _ in range(4):  # the one taken, and three in the queue
            assert made.acquire(timeout=10)
        while not loader.is_ready:
            time.sleep(0.01)
        further = 0
        while made.acquire(timeout=0.5):  # eight that are ready, and those in the hands of threads
            further += 1
        assert further < 16
        taken = sum(1 for _ in range(95) if next(loader, None))
    assert taken == 95


def test_a_closed_loader_refuses_and_an_abandoned_one_ends_its_threads(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [800]), batch=8)
    before = set(threading.enumerate())
    loader = loader_of(job)
    next(loader)
    loader.close()
    assert set(threading.enumerate()) <= before
    with pytest.raises(DataError, match="closed"):
        for _ in loader:
            pass
    abandoned = loader_of(job)
    next(abandoned)
    del abandoned
    assert set(threading.enumerate()) <= before


#: Prints the time when a batch has been read, or at once; what ends the process then is the interpreter.
_PARTLY_READ = """
import sys, time
from tests.data.test_loading import data_job, loader_of
from tests.tokens.builders import make_reference, make_tokenizer
from tpuworker.pipeline import make_pipeline
what, pattern, ending = sys.argv[1:]
if what != "nothing":
    is_real = what == "reference"
    job = data_job(pattern, batch=64, **({"max_length": 2048} if is_real else {}))
    loader = loader_of(job, make_pipeline(job.data, make_tokenizer(), make_reference(), 64) if is_real else None)
    next(loader)
    next(loader)  # of the second call of the pipeline, while the next ones are made
print(time.time(), flush=True)
exec(ending)
"""


def seconds_to_end(*arguments: str) -> float:
    """Return how long a process took to end once it had read what it wanted."""
    done = subprocess.run(
        [sys.executable, "-c", _PARTLY_READ, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    gone = time.time()
    assert done.returncode == (3 if arguments[-1] else 0), done.stderr
    assert done.stderr == ""
    return gone - float(done.stdout)


@pytest.mark.parametrize(
    ("what", "ending"),
    [
        ("bytes", ""),
        ("bytes", "raise SystemExit(3)"),
        ("reference", ""),
    ],
)
def test_a_process_ends_within_a_second_of_a_partly_read_stream(what: str, ending: str, tmp_path: Path) -> None:
    """A busy machine is slow to end any process: one that read nothing is the measure, and one try of five counts."""
    prose = "".join(corpus())
    texts = (
        [prose[n * 300 : n * 300 + 6000] for n in range(4200)]
        if what == "reference"
        else [f"r{n:06d}" for n in range(12_000)]
    )
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=500)
    more_seconds = []
    for _ in range(5):
        least = seconds_to_end("nothing", "", ending)
        more_seconds.append(seconds_to_end(what, f"{tmp_path}/*.parquet", ending) - least)
        if more_seconds[-1] < 1:
            return
    pytest.fail(f"ended {', '.join(f'{each:.2f}' for each in more_seconds)} s after one that read nothing")


def test_each_unit_is_decoded_once_an_epoch_when_the_lanes_are_aligned_to_it(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [640], row_group=80), batch=8, shuffle={"lanes": 8, "buffer_size": 640})
    with loader_of(job) as loader:
        list(loader)
        assert loader.stats().stages["decode"].rows == 640


def test_a_window_larger_than_the_budget_is_mapped_from_disk_and_gives_the_same(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [700, 300], row_group=50), batch=8, shuffle={"buffer_size": 1000})
    assert global_batches(job, budget_bytes=2000) == global_batches(job)


def test_counters_tell_what_every_stage_did(tmp_path: Path) -> None:
    with loader_of(data_job(write_parquet(tmp_path, [80]), batch=8)) as loader:
        list(loader)
        stats = loader.stats()
    assert stats.batches == 10
    assert stats.stages["read"].rows == stats.stages["pack"].rows == 80
    assert stats.stages["pack"].bytes == 10 * 3 * 8 * MAX_LENGTH * 4
    assert stats.stages["tokenise"].busy_seconds > 0
    assert stats.slowest in stats.stages
