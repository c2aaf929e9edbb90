"""A rank that is missing, malformed or contradictory is refused, with its cause."""

from __future__ import annotations

import pytest

from tests.builders import make_job
from tpuworker.errors import IdentityError
from tpuworker.identity import identify
from tpuworker.spec import TPUJob
from tpuworker.spec.environment import worker_environment


def refusal(job: TPUJob, environment: dict[str, str]) -> IdentityError:
    with pytest.raises(IdentityError) as caught:
        identify(job, environment)
    return caught.value


def multislice() -> TPUJob:
    return make_job(slice={"count": 2}, data={"global_batch_size": 64})


def without(environment: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in names}


def test_multi_host_slice_without_worker_id_is_refused_and_names_the_webhook() -> None:
    job = make_job()
    error = refusal(job, without(worker_environment(job, "tiny", 0, 1), "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"))
    assert [fault.path for fault in error.faults] == ["TPU_WORKER_ID"]
    for word in ("webhook", "Indexed", "subdomain", "parallelism", "google.com/tpu", "4 hosts"):
        assert word in str(error)
    assert error.exit_code == 2


def test_tpu7x_without_worker_id_is_accepted_on_kubernetes_word() -> None:
    job = make_job(slice={"generation": "tpu7x", "topology": "2x2x2"})
    environment = without(worker_environment(job, "tiny", 0, 1), "TPU_WORKER_ID", "TPU_PROCESS_ADDRESSES")
    assert identify(job, environment).host_of_slice == 1


def test_contradiction_names_both_witnesses_and_both_values() -> None:
    job = make_job()
    error = refusal(job, worker_environment(job, "tiny", 0, 1) | {"TPU_WORKER_ID": "3"})
    assert "JOB_COMPLETION_INDEX says 1, TPU_WORKER_ID says 3" in str(error)


def test_pod_name_contradicting_the_label_is_refused() -> None:
    job = multislice()
    error = refusal(job, worker_environment(job, "tiny", 0, 1) | {"TPULAUNCH_POD_NAME": "tiny-slice-1-1-abcde"})
    assert "TPULAUNCH_POD_NAME=tiny-slice-1-1-abcde says 1" in str(error)


def test_a_pod_name_of_full_length_proves_nothing() -> None:
    job = multislice()
    name = "x" * 46 + "-slice-1-3-abcde"
    assert len(name) < 63
    padded = "x" * (63 - len(name)) + name
    environment = worker_environment(job, "tiny", 0, 1) | {"TPULAUNCH_POD_NAME": padded}
    assert identify(job, environment).label == "0/1"


def test_multislice_without_megascale_is_refused_and_offers_the_explicit_mode() -> None:
    job = multislice()
    error = refusal(job, without(worker_environment(job, "tiny", 1, 0), "MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES"))
    assert [fault.path for fault in error.faults] == ["MEGASCALE_SLICE_ID"]
    assert "multislice_env: explicit" in str(error)


def test_megascale_counting_other_slices_is_refused() -> None:
    job = multislice()
    error = refusal(job, worker_environment(job, "tiny", 1, 0) | {"MEGASCALE_NUM_SLICES": "4"})
    assert "MEGASCALE_NUM_SLICES: found 4; wanted 2 slices" in str(error)


def test_another_slice_than_the_spec_names_is_refused() -> None:
    job = make_job()
    error = refusal(job, worker_environment(job, "tiny", 0, 0) | {"TPU_WORKER_HOSTNAMES": "a,b"})
    assert "TPU_WORKER_HOSTNAMES: found 2 hosts; wanted 4 hosts (1 x v6e 4x4)" in str(error)


def test_an_index_beyond_the_slice_is_refused() -> None:
    job = make_job()
    beyond = {"JOB_COMPLETION_INDEX": "4", "TPU_WORKER_ID": "4", "TPULAUNCH_POD_NAME": ""}
    assert "from 0 to 3" in str(refusal(job, worker_environment(job, "tiny", 0, 0) | beyond))


def test_torchrun_of_another_size_is_refused() -> None:
    error = refusal(make_job(), {"RANK": "0", "WORLD_SIZE": "16", "MASTER_ADDR": "a"})
    assert "WORLD_SIZE: found 16; wanted 4 hosts" in str(error)
    assert "--nproc-per-node 1" in str(error)


def test_half_of_torchrun_is_refused() -> None:
    assert "WORLD_SIZE: found nothing" in str(refusal(make_job(slice={"topology": "2x2"}), {"RANK": "0"}))


def test_torchrun_contradicting_kubernetes_is_refused() -> None:
    job = make_job()
    error = refusal(job, worker_environment(job, "tiny", 0, 1) | {"RANK": "2", "WORLD_SIZE": "4"})
    assert "RANK=2 says 2" in str(error)


def test_bare_environment_never_means_alone() -> None:
    error = refusal(multislice(), {})
    assert {fault.path for fault in error.faults} == {
        "TPULAUNCH_SLICE_INDEX",
        "MEGASCALE_SLICE_ID",
        "JOB_COMPLETION_INDEX",
        "TPU_WORKER_ID",
        "TPULAUNCH_COORDINATOR",
    }


def test_a_spec_of_one_host_in_a_larger_world_is_refused() -> None:
    job = make_job(slice={"topology": "2x2"})
    assert "WORLD_SIZE: found 4" in str(refusal(job, {"RANK": "1", "WORLD_SIZE": "4"}))
    assert "JOB_COMPLETION_INDEX: found 1" in str(refusal(job, {"JOB_COMPLETION_INDEX": "1"}))


@pytest.mark.parametrize("text", ["", "-1", "one", "1.0", " 1"])
def test_a_malformed_number_is_refused_and_quoted(text: str) -> None:
    job = make_job()
    error = refusal(job, worker_environment(job, "tiny", 0, 1) | {"JOB_COMPLETION_INDEX": text})
    assert f"JOB_COMPLETION_INDEX: found {text!r}; wanted a number" in str(error)


def test_a_coordinator_with_a_word_as_port_is_refused() -> None:
    job = make_job()
    error = refusal(job, worker_environment(job, "tiny", 0, 1, coordinator="host:http"))
    assert "TPULAUNCH_COORDINATOR" in str(error)
