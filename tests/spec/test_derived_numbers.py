"""Numbers that follow from a spec: hosts, devices, rows, lanes, steps."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import make_job
from tpuworker.spec.data import resolve_lanes


def test_a_multislice_job_counts_hosts_devices_and_rows_over_all_slices() -> None:
    job = make_job(slice={"count": 2}, data={"global_batch_size": 512, "max_length": 2048})
    assert (job.hosts_per_slice, job.num_hosts, job.num_devices) == (4, 8, 32)
    assert (job.rows_per_host, job.rows_per_device) == (64, 16)
    assert job.tokens_per_step == 512 * 2048


def test_a_chip_of_two_devices_counts_twice() -> None:
    job = make_job(slice={"generation": "tpu7x", "topology": "2x2x2"})
    assert (job.num_hosts, job.num_devices) == (2, 16)


def test_hosts_may_share_rows_over_their_devices() -> None:
    job = make_job(data={"global_batch_size": 4, "batch_sharded_over": "hosts"})
    assert (job.rows_per_host, job.rows_per_device) == (1, 1)


@pytest.mark.parametrize(
    ("remainder", "rows", "steps"), [("drop", 191, 2), ("mask", 191, 3), ("drop", 63, 0), ("mask", 1, 1)]
)
def test_the_remainder_is_left_out_or_filled_up(remainder: str, rows: int, steps: int) -> None:
    assert make_job(data={"remainder": remainder}).steps_per_epoch(rows) == steps


def test_a_job_stops_at_its_steps_or_its_epochs_whichever_is_first() -> None:
    assert make_job(data={"epochs": 3}).num_steps(640) == 30
    assert make_job(data={"epochs": 3}, train={"steps": 7}).num_steps(640) == 7
    assert make_job(data={"epochs": 3}, train={"steps": 70}).num_steps(640) == 30


@given(st.integers(1, 64), st.integers(1, 64))
def test_automatic_lanes_divide_the_batch_and_belong_to_hosts_whole(num_hosts: int, rows_per_host: int) -> None:
    batch = num_hosts * rows_per_host
    lanes = resolve_lanes(batch, num_hosts)
    assert batch % lanes == 0
    assert lanes % num_hosts == 0
    assert lanes >= min(64, batch)


@given(st.sampled_from([64, 128, 192, 512, 1024]), st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8]))
def test_fewer_hosts_that_divide_the_lanes_keep_them(batch: int, num_hosts: int, divisor: int) -> None:
    assume(num_hosts % divisor == 0)
    assert resolve_lanes(batch, num_hosts) == resolve_lanes(batch, num_hosts // divisor)
