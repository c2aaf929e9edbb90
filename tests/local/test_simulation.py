"""Which slices stand for another number of hosts, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import make_job
from tpulaunch.errors import InputError
from tpulaunch.local.simulation import MOST_HOSTS, describe, simulated
from tpuworker.errors import SpecError
from tpuworker.spec.tpu import GENERATIONS


def test_the_specs_own_hosts_need_no_other_slice() -> None:
    job = make_job()
    assert simulated(job, None) is job
    assert simulated(job, 4) is job


@pytest.mark.parametrize(
    ("hosts", "topology", "machine", "count"),
    [
        (1, "2x2", "ct6e-standard-4t", 1),
        (2, "2x4", "ct6e-standard-4t", 1),
        (3, "2x2", "ct6e-standard-4t", 3),
        (8, "4x8", "ct6e-standard-4t", 1),
    ],
)
def test_the_nearest_slice_keeps_machine_and_count_where_it_can(
    hosts: int, topology: str, machine: str, count: int
) -> None:
    slices = simulated(make_job(data={"global_batch_size": 96}), hosts).spec.slice
    assert (slices.topology, slices.machine, slices.count) == (topology, machine, count)


@given(generation=st.sampled_from(GENERATIONS), hosts=st.integers(1, MOST_HOSTS))
def test_every_generation_can_stand_for_any_number_of_hosts(generation: object, hosts: int) -> None:
    shape = next(generation.shapes())  # type: ignore[attr-defined]
    batch = hosts * 8 * shape.hosts
    edges = "x".join(map(str, shape.topology))
    job = make_job(
        slice={"generation": shape.generation.name, "topology": edges, "machine": shape.machine.name},
        data={"global_batch_size": batch},
    )
    assert simulated(job, hosts).num_hosts == hosts


def test_all_but_the_slices_stays_as_it_was() -> None:
    job = make_job(train={"entrypoint": "a.b", "steps": 7}, metadata={"labels": {"team": "lm"}})
    other = simulated(job, 2)
    assert other.spec.train == job.spec.train
    assert other.spec.data == job.spec.data
    assert other.metadata == job.metadata


def test_a_batch_that_does_not_divide_is_refused_in_the_specs_own_words() -> None:
    with pytest.raises(
        SpecError, match=r"--hosts 3: spec\.data\.global_batch_size: found 64; wanted a multiple of the 12"
    ):
        simulated(make_job(), 3)


def test_a_large_slice_is_run_here_only_if_somebody_says_how_many_hosts() -> None:
    job = make_job(slice={"topology": "16x16"}, data={"global_batch_size": 256})
    with pytest.raises(InputError, match=r"64 hosts .* --hosts 2"):
        simulated(job, None)
    assert simulated(job, 2).num_hosts == 2


def test_no_hosts_are_no_job() -> None:
    with pytest.raises(InputError, match="at least 1"):
        simulated(make_job(), 0)


def test_people_are_told_which_slice_is_simulated() -> None:
    assert describe(make_job()) == "1 slice of v6e 4x4 on ct6e-standard-4t: 4 hosts with 4 devices each"
