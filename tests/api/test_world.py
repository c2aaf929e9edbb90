"""World and rank come from the caller, the runtime or the environment; contradictions and gaps are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.builders import job_document
from tpuworker.api.world import World, find_world, replicas_of, world_of_environment
from tpuworker.errors import IdentityError


def module(**functions: int) -> ModuleType:
    made = ModuleType("torch_xla_part")
    for name, value in functions.items():
        setattr(made, name, lambda value=value: value)
    return made


def test_what_the_caller_says_goes_before_everything() -> None:
    assert find_world(4, 3, environment={"RANK": "0", "WORLD_SIZE": "2"}) == World(4, 3)


@pytest.mark.parametrize(
    ("world_size", "rank", "words"),
    [
        (4, None, "rank: found nothing; wanted both of them, since world_size is given"),
        (None, 1, "world_size: found nothing; wanted both of them, since rank is given"),
        (4, 4, "rank: found 4; wanted 0 to 3"),
        (4, -1, "rank: found -1; wanted 0 to 3"),
        (0, 0, "world_size: found 0; wanted at least 1"),
    ],
)
def test_half_a_world_and_ranks_outside_it_are_refused(world_size: int | None, rank: int | None, words: str) -> None:
    with pytest.raises(IdentityError, match=words):
        find_world(world_size, rank)


def test_a_process_without_any_sign_of_others_is_alone() -> None:
    assert find_world(environment={}, library="jax") == World(1, 0)


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        ({"RANK": "2", "WORLD_SIZE": "4"}, World(4, 2)),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, World(2, 1)),
        ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a"}, None),
        (
            {
                "TPU_WORKER_ID": "1",
                "TPU_WORKER_HOSTNAMES": "a,b",
                "MEGASCALE_NUM_SLICES": "3",
                "MEGASCALE_SLICE_ID": "2",
            },
            World(6, 5),
        ),
        ({"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"}, World(2, 1)),
        ({}, None),
    ],
)
def test_environments_tell_world_and_rank(environment: dict[str, str], world: World | None) -> None:
    assert world_of_environment(environment) == world


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "1"}, "world_size"),
        ({"WORLD_SIZE": "4"}, "rank"),
        ({"WORLD_SIZE": "4", "RANK": "four"}, "RANK"),
        ({"JOB_COMPLETION_INDEX": "3"}, "world_size"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_ID"),
        ({"MEGASCALE_NUM_SLICES": "2"}, "MEGASCALE_SLICE_ID"),
    ],
)
def test_an_environment_that_speaks_of_others_but_not_completely_is_refused(
    environment: dict[str, str], place: str
) -> None:
    with pytest.raises(IdentityError) as refusal:
        world_of_environment(environment)
    assert refusal.value.faults[0].path == place


def test_the_spec_of_the_job_is_a_witness(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps(job_document(slice={"generation": "v6e", "topology": "1x1", "count": 2})))
    environment = {
        "TPULAUNCH_SPEC": str(spec),
        "TPULAUNCH_SLICE_INDEX": "1",
        "MEGASCALE_SLICE_ID": "1",
        "JOB_COMPLETION_INDEX": "0",
        "TPULAUNCH_COORDINATOR": "tiny-slice-0-0.tiny",
    }
    assert world_of_environment(environment) == World(2, 1)
    with pytest.raises(IdentityError, match="MEGASCALE_SLICE_ID"):
        world_of_environment({**environment, "MEGASCALE_SLICE_ID": "0"})


def test_the_present_generation_of_torch_xla_counts_replicas_and_under_spmd_processes() -> None:
    names = {"world_size": 8, "global_ordinal": 5, "process_count": 2, "process_index": 1}
    assert replicas_of(module(**names, is_spmd=False), None) == (8, 5)
    assert replicas_of(module(**names, is_spmd=True), None) == (2, 1)
    assert replicas_of(module(**{**names, "world_size": 1, "global_ordinal": 0}, is_spmd=False), None) == (2, 1)


def test_the_older_generation_of_torch_xla_has_other_names() -> None:
    assert replicas_of(module(), module(xrt_world_size=8, get_ordinal=5)) == (8, 5)
    assert replicas_of(None, module(xrt_world_size=8, get_ordinal=5)) == (8, 5)


def test_a_runtime_that_knows_only_itself_does_not_overrule_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuworker.api.world.world_of_torch", lambda: World(1, 0))
    assert find_world(environment={"RANK": "3", "WORLD_SIZE": "4"}) == World(4, 3)


def test_a_runtime_and_an_environment_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuworker.api.world.world_of_torch", lambda: World(3, 0))
    with pytest.raises(IdentityError, match="3 readers by the runtime, 2 by the environment"):
        find_world(environment={"RANK": "0", "WORLD_SIZE": "2"})


@pytest.mark.torch_xla
def test_the_runtime_that_is_installed_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    pytest.importorskip("torch_xla")
    assert find_world(environment={}) == World(1, 0)
    assert find_world(environment={"RANK": "1", "WORLD_SIZE": "2"}) == World(2, 1)
