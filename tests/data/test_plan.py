"""The plan: buffers by rule and by RAM, steps by arithmetic, nothing that depends on the number of hosts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import make_job
from tests.data.builders import data_job, made_up_index
from tpuworker.data.cursor import Cursor
from tpuworker.data.index import Index
from tpuworker.data.plan import DataPlan, buffer_limit_bytes, make_data_plan
from tpuworker.data.sequence import Sequence

GIB = 1 << 30


def plan_of(units: int, rows_per_unit: int, *, hosts: int = 1, batch: int = 64, **data: object) -> DataPlan:
    return make_data_plan(data_job("x", hosts=hosts, batch=batch, **data), made_up_index([rows_per_unit] * units))


@pytest.mark.parametrize(
    ("units", "rows_per_unit", "rows", "rule"),
    [
        (90, 10, 900, "10,000 rows below 1,000,000"),
        (999, 100, 10_048, "10,000 rows below 1,000,000"),
        (10_000, 100, 100_032, "100,000 rows below 100,000,000"),
        (99_999, 1000, 100_032, "100,000 rows below 100,000,000"),
        (100_000, 1000, 1_000_000, "1,000,000 rows from 100,000,000 rows"),
        (100_000, 20_000, 2_000_000, "0.1 % of the rows"),
    ],
)
def test_the_buffer_follows_the_size_of_the_data(units: int, rows_per_unit: int, rows: int, rule: str) -> None:
    plan = plan_of(units, rows_per_unit)
    assert plan.buffer_rule == rule
    assert rows <= plan.buffer_rows <= max(rows, 64 * rows_per_unit) + 64


def test_a_window_is_a_typical_unit_at_least_and_that_bound_is_named() -> None:
    plan = plan_of(100, 5000)
    assert (plan.window_rows, plan.buffer_rows, plan.buffer_rule) == ((5000,), 320_000, "a unit in each of 64 lanes")
    asked = plan_of(100, 5000, shuffle={"buffer_size": 640})
    assert (asked.window_rows, asked.buffer_rule) == ((10,), "buffer_size: 640")


#: What a v6e host of one chip can spare is 59.2 GiB.
@pytest.mark.parametrize(
    ("units", "rows_per_unit", "row_bytes", "rule"),
    [
        (20_000, 100, 500_000, "100,000 rows below 100,000,000"),  # 46.6 GiB
        (20_000, 100, 1_000_000, "59.2 GiB of a host's RAM"),  # 100,000 rows would be 93.1 GiB
        (200, 2000, 450_000, "a unit in each of 64 lanes"),  # 53.6 GiB, though 10,000 rows would do
        (200, 2000, 1_000_000, "59.2 GiB of a host's RAM"),  # 10,000 rows fit, a unit in each lane does not
    ],
)
def test_heavy_rows_are_bounded_by_the_ram_of_a_host_and_only_they(
    units: int, rows_per_unit: int, row_bytes: int, rule: str
) -> None:
    index = made_up_index([rows_per_unit] * units)
    heavy = replace(index.sources[0], unit_bytes=index.sources[0].unit_rows * row_bytes)
    plan = make_data_plan(data_job("x", batch=64), Index((heavy,)))
    assert plan.buffer_rule == rule
    assert plan.buffer_bytes <= plan.buffer_limit_bytes + 64 * row_bytes
    if "RAM" in rule:
        assert plan.buffer_bytes > 0.99 * plan.buffer_limit_bytes


def test_the_ram_of_the_host_bounds_the_buffer_and_is_named() -> None:
    plan = make_data_plan(
        make_job(
            slice={"generation": "v5e", "topology": "1x1"},
            data={"sources": [{"files": "x"}], "max_length": 16, "global_batch_size": 64},
        ),
        made_up_index(
            [1000] * 1000,
        ),
    )
    assert plan.buffer_limit_bytes == int((38 * GIB - 4 * GIB - 38 * GIB // 8) * 0.5)
    tight = make_job(
        slice={"generation": "v5e", "topology": "1x1"},
        worker={"memory_gib": 5, "shared_memory_gib": 1},
        data={
            "sources": [{"files": "x"}],
            "max_length": 16,
            "global_batch_size": 64,
            "shuffle": {"buffer_size": 10**9},
        },
    )
    assert buffer_limit_bytes(tight) == 0
    bounded = make_data_plan(tight, made_up_index([1000] * 1000))
    assert bounded.window_rows == (1,)
    assert bounded.buffer_rule == "0.0 GiB of a host's RAM"


def test_memory_that_volumes_take_is_not_planned_twice() -> None:
    base = make_job(slice={"generation": "v6e", "topology": "1x1"})
    scratch = {"name": "ram", "mount_path": "/ram", "scratch": {"scratch_gib": 20, "medium": "memory"}}
    taken = make_job(slice={"generation": "v6e", "topology": "1x1"}, worker={"volumes": [scratch]})
    assert buffer_limit_bytes(base) - buffer_limit_bytes(taken) == 10 * GIB


def test_windows_lanes_and_steps_are_the_same_for_every_number_of_hosts() -> None:
    plans = [plan_of(70, 33, hosts=hosts, epochs=3) for hosts in (1, 2, 8, 64)]
    assert len({(plan.num_lanes, plan.window_rows, plan.steps_per_epoch, plan.num_steps) for plan in plans}) == 1
    assert plans[0].num_steps == 3 * (70 * 33 // 64)
    assert plans[0].remainder_rows == 70 * 33 % 64


def test_steps_stop_where_the_spec_says() -> None:
    assert plan_of(70, 33, epochs=3, train={"steps": 50}).num_steps == 50


def test_a_resumed_run_keeps_lanes_and_windows() -> None:
    small = make_data_plan(
        data_job("x", batch=64, hosts=2, shuffle={"lanes": 16, "buffer_size": 160}), made_up_index([100] * 9)
    )
    cursor = Cursor.start(small, {})
    resumed = make_data_plan(data_job("x", batch=64, hosts=8), made_up_index([100] * 9), cursor)
    assert (resumed.num_lanes, resumed.window_rows) == (16, (10,))
    assert resumed.buffer_rule == "the run that is resumed"


def units_per_batch(plan: DataPlan, index: Index, step: int) -> int:
    refs = Sequence(plan, index).rows(step, 1, range(plan.num_lanes))
    return len(np.unique(refs.units))


@pytest.mark.parametrize(("buffer", "least"), [("auto", 0.78), (19_200, 0.92)])
def test_batches_are_nearly_as_diverse_as_under_a_full_permutation(buffer: object, least: float) -> None:
    """Distinct units per batch over what a full shuffle of the rows gives.

    A stream shuffled by shards and a buffer of 10,000 rows reaches 0.25 on this set, one of 1,000 rows 0.05.
    """
    index = made_up_index([100] * 200)
    plan = make_data_plan(data_job("x", batch=256, shuffle={"buffer_size": buffer}), index)
    found = np.mean([units_per_batch(plan, index, step) for step in range(plan.steps_per_epoch)])
    assert found / (200 * (1 - (1 - 1 / 200) ** 256)) > least


def test_lanes_open_their_windows_at_different_steps() -> None:
    index = made_up_index([64] * 640)
    plan = make_data_plan(data_job("x", batch=64, shuffle={"buffer_size": 64 * 64}), index)
    sequence = Sequence(plan, index)
    opened = [set(sequence.rows(step, 1, range(64)).open_units) for step in range(64, 128)]
    new = [len(after - before) for before, after in itertools.pairwise(opened)]
    assert max(new) <= 4
