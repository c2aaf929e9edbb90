"""Identity read back from a host's environment is the identity that was planned: every row, slice and host."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import make_job
from tpuworker.identity import identify
from tpuworker.spec import TPUJob
from tpuworker.spec.environment import worker_environment
from tpuworker.spec.tpu import GENERATIONS, SliceShape, format_topology

ROWS = [shape for generation in GENERATIONS for shape in generation.shapes()]


def job_on(shape: SliceShape, count: int) -> TPUJob:
    return make_job(
        slice={
            "generation": shape.generation.name,
            "topology": format_topology(shape.topology),
            "machine": shape.machine.name,
            "count": count,
        },
        data={"global_batch_size": count * shape.hosts * shape.devices_per_host},
    )


@settings(max_examples=300, deadline=None)
@given(shape=st.sampled_from(ROWS), count=st.integers(1, 12), data=st.data())
def test_identity_read_back_is_the_one_planned(shape: SliceShape, count: int, data: st.DataObject) -> None:
    job = job_on(shape, count)
    slice_index = data.draw(st.integers(0, count - 1))
    host = data.draw(st.integers(0, shape.hosts - 1))
    identity = identify(job, worker_environment(job, "tiny", slice_index, host))
    assert (identity.slice_index, identity.host_of_slice) == (slice_index, host)
    assert (identity.num_slices, identity.hosts_per_slice) == (count, shape.hosts)
    assert identity.coordinator == "tiny-slice-0-0.tiny"
    assert identity.pod_name == f"tiny-slice-{slice_index}-{host}"


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda generation: generation.name)
def test_ranks_of_all_hosts_are_each_number_once(generation: object) -> None:
    for shape in [shape for shape in ROWS if shape.generation is generation and shape.hosts <= 64]:
        job = job_on(shape, 3)
        identities = [
            identify(job, worker_environment(job, "tiny", slice_index, host))
            for slice_index in range(3)
            for host in range(shape.hosts)
        ]
        assert [identity.host_rank for identity in identities] == list(range(3 * shape.hosts))
        assert [identities[0].label_of(i.host_rank) for i in identities] == [i.label for i in identities]


def test_hosts_of_tpu7x_are_known_without_their_ports() -> None:
    job = make_job(slice={"generation": "tpu7x", "topology": "2x2x2"})
    identity = identify(job, worker_environment(job, "tiny", 0, 1))
    assert identity.hostnames == ("tiny-slice-0-0.tiny", "tiny-slice-0-1.tiny")


def test_a_coordinator_may_bring_its_port() -> None:
    job = make_job()
    identity = identify(job, worker_environment(job, "tiny", 0, 1, coordinator="127.0.0.1:4711"))
    assert (identity.coordinator, identity.coordinator_port) == ("127.0.0.1", 4711)


def test_a_pod_name_with_kubernetes_own_ending_is_a_witness_that_agrees() -> None:
    job = make_job(slice={"count": 2}, data={"global_batch_size": 64})
    environment = worker_environment(job, "tiny", 1, 2) | {"TPULAUNCH_POD_NAME": "tiny-slice-1-2-x7k2p"}
    assert identify(job, environment).label == "1/2"


def test_torchrun_alone_is_enough() -> None:
    job = make_job(slice={"count": 2}, data={"global_batch_size": 64})
    environment = {"RANK": "6", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    identity = identify(job, environment)
    assert (identity.label, identity.coordinator, identity.coordinator_port) == ("1/2", "10.0.0.1", None)


def test_a_spec_of_one_host_declares_alone() -> None:
    identity = identify(make_job(slice={"topology": "2x2"}), {})
    assert (identity.host_rank, identity.num_hosts) == (0, 1)
