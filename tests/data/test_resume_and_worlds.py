"""Global batches are a function of the data and the spec: not of hosts, threads, depth or interruptions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.builders import BytePipeline, Host, data_job, global_batches, made_up_index, numbers, write_parquet
from tpuworker.data.cursor import Cursor
from tpuworker.data.index import Index
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.data.plan import make_data_plan
from tpuworker.data.sequence import FILLER, Sequence
from tpuworker.errors import DataError, InputError

Row = tuple[int, int, int]


def rows_of_job(index: Index, hosts: int, cursor: Cursor | None = None, **data: object) -> list[list[Row]]:
    """Return (source, unit, row) of every global batch, put together from the hosts' lanes."""
    job = data_job("unused", hosts=hosts, **data)
    plan = make_data_plan(job, index, cursor)
    sequence = Sequence(plan, index)
    parts = []
    for rank in range(hosts):
        refs = sequence.rows(0, plan.num_steps, plan.lanes_of(rank))
        stacked = np.stack([refs.sources, refs.units, refs.rows], axis=1)
        parts.append(stacked.reshape(plan.num_steps, plan.rows_per_host, 3))
    whole = np.concatenate(parts, axis=1)
    return [[tuple(map(int, row)) for row in step] for step in whole]


units = st.lists(st.integers(1, 40), min_size=1, max_size=12)
worlds = st.sampled_from([(64, 64), (64, 32), (32, 8), (24, 6), (12, 3), (8, 1), (4, 4)])


@given(units=units, world=worlds, seed=st.integers(0, 2**40), buffer=st.integers(1, 200), epochs=st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_hosts_together_give_each_row_once_an_epoch_but_for_the_declared_remainder(
    units: list[int], world: tuple[int, int], seed: int, buffer: int, epochs: int
) -> None:
    batch, hosts = world
    index = made_up_index(units)
    shuffle = {"seed": seed, "buffer_size": buffer}
    if sum(units) < batch:
        with pytest.raises(InputError, match="one global batch"):
            rows_of_job(index, hosts, batch=batch, shuffle=shuffle)
        return
    batches = rows_of_job(index, hosts, batch=batch, shuffle=shuffle, epochs=epochs)
    steps = sum(units) // batch
    assert len(batches) == steps * epochs
    for epoch in range(epochs):
        seen = [row for step in batches[epoch * steps : (epoch + 1) * steps] for row in step]
        assert len(set(seen)) == len(seen) == steps * batch
        assert all(0 <= row < units[unit] for _, unit, row in seen)


@given(units=units, world=worlds, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_under_mask_every_row_comes_and_fillers_stand_in_the_last_batch_only(
    units: list[int], world: tuple[int, int], seed: int
) -> None:
    batch, hosts = world
    batches = rows_of_job(made_up_index(units), hosts, batch=batch, shuffle={"seed": seed}, remainder="mask")
    assert len(batches) == -(-sum(units) // batch)
    assert all(source != FILLER for step in batches[:-1] for source, _, _ in step)
    seen = [row for step in batches for row in step if row[0] != FILLER]
    assert len(set(seen)) == len(seen) == sum(units)


@pytest.mark.parametrize("order", ["shuffled", "sequential"])
@pytest.mark.parametrize("sources", [1, 3])
def test_global_batches_are_the_same_for_every_number_of_hosts(order: str, sources: int) -> None:
    index = made_up_index(*([17, 200, 3, 45, 90] for _ in range(sources)), weights=[1, 2.5, 0.3][:sources])
    files = [{"files": "unused"}] * sources
    job = {"batch": 64, "epochs": 2, "shuffle": {"order": order, "lanes": 64, "seed": 5}}
    alone = rows_of_job(index, 1, **job, sources=files) if sources > 1 else rows_of_job(index, 1, **job)
    for hosts in (2, 4, 8, 16, 32, 64):
        assert rows_of_job(index, hosts, **job, **({"sources": files} if sources > 1 else {})) == alone


def test_a_size_just_above_a_power_of_two_comes_whole_through_the_loader(tmp_path: Path) -> None:
    """65,537 rows: a cipher-style shuffle that pads to even bits and reads back too few gives some of them twice."""
    pattern = write_parquet(tmp_path, [65_536, 1], row_group=4096)
    for lanes, buffer in ((1, 65_537), (64, 4096)):
        job = data_job(pattern, batch=64, remainder="mask", shuffle={"lanes": lanes, "buffer_size": buffer})
        rows = [n for batch in global_batches(job) for n in batch]
        assert sorted(n for n in rows if n is not None) == list(range(65_537))
        assert rows.count(None) == 63


def test_another_seed_and_another_epoch_are_another_order() -> None:
    index = made_up_index([100] * 10)
    once = rows_of_job(index, 1, batch=50, epochs=2, shuffle={"seed": 1})
    other = rows_of_job(index, 1, batch=50, epochs=2, shuffle={"seed": 2})
    assert once[:20] != once[20:]
    assert once[:20] != other[:20]


def test_sequential_order_is_that_of_the_files(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [7, 3, 30], row_group=4), batch=8, hosts=4, shuffle={"order": "sequential"})
    assert global_batches(job) == [list(range(start, start + 8)) for start in range(0, 40, 8)]


#: Input 1 of the loaders study: buffers that are lost or replayed on resume.
UNEVEN_FILES = [90, 41, 230, 6, 66, 118, 88]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_parquet(tmp_path_factory.mktemp("uneven"), UNEVEN_FILES)


def tail(job: object, index: Index, cursor: Cursor, **loader: object) -> list[list[int | None]]:
    return global_batches(job, index, start=cursor, **loader)  # type: ignore[arg-type]


@pytest.mark.parametrize("percent", [0, 10, 50, 90, 100])
def test_a_resumed_run_gives_the_rest_of_the_uninterrupted_one(uneven: str, percent: int) -> None:
    job = data_job(uneven, batch=16, epochs=2, shuffle={"seed": 3, "buffer_size": 64})
    index = build_index(job)
    whole = global_batches(job, index)
    stop = len(whole) * percent // 100
    with Loader(job, Host(0, 1), index, BytePipeline()) as loader:
        cursor = loader.cursor
        for _ in range(stop):
            cursor = next(loader).cursor
    assert tail(job, index, Cursor.from_json(cursor.to_json())) == whole[stop:]


#: Stops a run after some steps and prints the cursor, or goes on from a cursor to the end; rows by their ids.
_PART_OF_A_RUN = """
import json, sys
from itertools import islice
from tests.data.builders import BytePipeline, Host, data_job, numbers
from tpuworker.data.cursor import Cursor
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
pattern, steps, cursors = json.loads(sys.argv[1])
job = data_job(pattern, batch=16, shuffle={"seed": 11, "buffer_size": 256})
index, told = build_index(job), []
for cursor in cursors or [None]:
    start = cursor and Cursor.from_json(cursor)
    with Loader(job, Host(0, 1), index, BytePipeline(), start=start) as loader:
        seen, places = [], [loader.cursor.to_json()]
        for batch in islice(loader, steps):
            seen.append(numbers(batch.arrays))
            places.append(batch.cursor.to_json())
    told.append([seen, places])
print(json.dumps(told))
"""


def part_of_a_run(pattern: str, steps: int | None, cursors: list[str]) -> list[tuple[list[Any], list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", _PART_OF_A_RUN, json.dumps([pattern, steps, cursors])],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [(seen, places) for seen, places in json.loads(done.stdout)]


def test_a_process_of_its_own_goes_on_where_another_was_stopped(uneven: str) -> None:
    ((whole, _),) = part_of_a_run(uneven, None, [])
    assert len(whole) == sum(UNEVEN_FILES) // 16
    stops = [len(whole) * percent // 100 for percent in (10, 50, 90)]
    ((first, places),) = part_of_a_run(uneven, stops[-1], [])
    rests = part_of_a_run(uneven, None, [places[stop] for stop in stops])
    for stop, (rest, _) in zip(stops, rests, strict=True):
        assert first[:stop] + rest == whole


@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_a_run_can_be_resumed_again_and_again_on_other_hosts_and_depths(uneven: str, data: st.DataObject) -> None:
    stops = sorted(data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=3)))
    first = data_job(uneven, batch=16, hosts=4, shuffle={"seed": 9, "buffer_size": 100, "lanes": 16})
    index = build_index(first)
    whole = global_batches(first, index)
    assert len(whole) == 39
    cursor: Cursor | None = None
    done: list[list[int | None]] = []
    for stop in [*stops, len(whole)]:
        hosts = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
        job = data_job(uneven, batch=16, hosts=hosts, shuffle={"seed": 9, "buffer_size": 100, "lanes": 16})
        parts = []
        for rank in range(hosts):
            depth = data.draw(st.integers(1, 6))
            with Loader(job, Host(rank, hosts), index, BytePipeline(), start=cursor, depth=depth) as loader:
                parts.append([next(loader) for _ in range(stop - len(done))])
        done += [[n for part in step for n in numbers(part.arrays)] for step in zip(*parts, strict=True)]
        cursors = {part[-1].cursor.to_json() for part in parts if part}
        assert len(cursors) <= 1
        cursor = Cursor.from_json(cursors.pop()) if cursors else cursor
    assert done == whole


def test_threads_and_depth_do_not_change_the_order(uneven: str) -> None:
    job = data_job(uneven, batch=16, shuffle={"seed": 1})
    index = build_index(job)
    assert global_batches(job, index, threads=4, depth=7) == global_batches(job, index, threads=1, depth=1)


def test_a_cursor_of_other_data_is_refused_with_every_difference(uneven: str, tmp_path: Path) -> None:
    job = data_job(uneven, batch=16)
    cursor = next(Loader(job, Host(0, 1), build_index(job), BytePipeline())).cursor
    other = data_job(write_parquet(tmp_path, [500, 60]), batch=16, shuffle={"seed": 8})
    index = build_index(other)
    with pytest.raises(DataError) as refused:
        Loader(other, Host(0, 1), index, BytePipeline(), start=cursor)
    message = str(refused.value)
    for difference in ("seed: found 8", "files: found 2; wanted 7", "rows: found 560; wanted 639", "content"):
        assert difference in message
    with Loader(other, Host(0, 1), index, BytePipeline(), start=cursor, accept_changed_data=True) as loader:
        assert next(loader).step == 1


def test_hosts_that_do_not_divide_the_lanes_of_a_cursor_are_refused(uneven: str) -> None:
    job = data_job(uneven, batch=24, hosts=2, shuffle={"lanes": 4})
    index = build_index(job)
    cursor = next(Loader(job, Host(0, 2), index, BytePipeline())).cursor
    with pytest.raises(InputError, match="4 lanes for 3 hosts"):
        Loader(data_job(uneven, batch=24, hosts=3), Host(0, 3), index, BytePipeline(), start=cursor)
