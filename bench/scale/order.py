"""The order of 10^4 to 10^12 rows, one host's share of it, and a restart at any place; no row is read."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bench.scale import Point, point
from bench.scale.jobs import index_of, job_over
from tpuworker.data.order import permute, round_keys
from tpuworker.data.plan import DataPlan, make_data_plan
from tpuworker.data.sequence import Sequence

_ROWS = tuple(10**power for power in range(4, 13))
_HOSTS = tuple(4**power for power in range(7))
_PERCENT = (0, 10, 25, 50, 75, 90, 99)
#: A unit of the simulated data holds so many rows, as a parquet row group does, but there are at most so many.
_ROWS_PER_UNIT, _MOST_UNITS = 1_000, 1_000_000
_POSITIONS = 200_000
_STEPS_PER_CALL = 32
_SIMULATED = "CPU time; the rows are simulated: their index is made up, the order is computed for real"
_ONE_BY_ONE = "CPU time; hosts are simulated one by one on this machine, for made-up data; the arithmetic is real"


def measure() -> Iterator[Point]:
    """Yield time a row, time and memory a host, time of a restart."""
    yield from _permutation()
    yield from _sequence()
    yield from _hosts()
    yield from _restarts()


def _permutation() -> Iterator[Point]:
    rng = np.random.default_rng(0)
    keys = round_keys("bench")
    for rows in _ROWS:
        positions = rng.integers(0, rows, _POSITIONS)
        seconds = _median_seconds(partial(permute, positions, rows, keys))
        yield point("Rows in the order", "permutation: ns a row", rows, 1e9 * seconds / _POSITIONS, _SIMULATED)


def _sequence() -> Iterator[Point]:
    for rows in _ROWS:
        sequence, plan = _opened(rows, global_batch_size=256, num_hosts=1)
        steps = min(_STEPS_PER_CALL, plan.steps_per_epoch)
        first = plan.steps_per_epoch // 2 if plan.steps_per_epoch > 2 * steps else 0
        seconds = _median_seconds(partial(sequence.rows, first, steps, plan.lanes_of(0)))
        yield point("Rows in the order", "file and row: ns a row", rows, 1e9 * seconds / (steps * 256), _SIMULATED)


def _hosts() -> Iterator[Point]:
    """Give each host 8 rows of a batch, so that the job grows with its hosts and a host's work stays."""
    panel = "Hosts of the job"
    for hosts in _HOSTS:
        tracemalloc.start()
        sequence, plan = _opened(10**9, global_batch_size=8 * hosts, num_hosts=hosts)
        lanes = plan.lanes_of(hosts - 1)
        started = time.process_time()
        sequence.rows(0, _STEPS_PER_CALL, lanes)
        first = time.process_time() - started
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        seconds = _median_seconds(partial(sequence.rows, 100, _STEPS_PER_CALL, lanes))
        yield point(panel, "first 32 steps of the last host: ms", hosts, 1e3 * first, _ONE_BY_ONE)
        yield point(panel, "a step: microseconds", hosts, 1e6 * seconds / _STEPS_PER_CALL, _ONE_BY_ONE)
        yield point(panel, "peak memory of the order: MB", hosts, peak / 1e6, _ONE_BY_ONE)


def _restarts() -> Iterator[Point]:
    panel = "Restart of 10^9 rows at a place (percent + 1)"
    for percent in _PERCENT:
        times = []
        for _ in range(5):
            sequence, plan = _opened(10**9, global_batch_size=1_024, num_hosts=16)
            started = time.process_time()
            sequence.rows(plan.steps_per_epoch * percent // 100, 1, plan.lanes_of(3))
            times.append(time.process_time() - started)
        yield point(panel, "first step: ms", percent + 1, 1e3 * statistics.median(times), _SIMULATED)


def _opened(rows: int, *, global_batch_size: int, num_hosts: int) -> tuple[Sequence, DataPlan]:
    index = index_of(rows, min(_MOST_UNITS, max(1, rows // _ROWS_PER_UNIT)))
    plan = make_data_plan(job_over("part-*.parquet", global_batch_size=global_batch_size, num_hosts=num_hosts), index)
    return Sequence(plan, index), plan


def _median_seconds(action: Callable[[], object], repeats: int = 5) -> float:
    action()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return statistics.median(times)
