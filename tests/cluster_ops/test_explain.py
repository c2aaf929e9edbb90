"""One cause and one remedy, from what a real cluster said: recordings made by the journeys in tests/e2e."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cluster_ops.builders import NOW, condition, make_event, make_jobset, make_pod, terminated
from tests.e2e.recording import read_recording
from tests.e2e.test_causes import CASES
from tpulaunch.cluster.explain import explain
from tpulaunch.cluster.state import Observation

RECORDINGS = Path(__file__).parent / "recordings"


def recording(case: str) -> Observation:
    return read_recording(RECORDINGS / f"{case.lower().replace(' ', '-')}.json")


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_job_is_explained(case: str) -> None:
    wanted, cause = CASES[case], explain(recording(case))
    assert cause is not None
    assert cause.code == wanted.code
    assert wanted.words in cause.cause
    assert wanted.remedy in cause.remedy


def test_every_recording_belongs_to_a_case_and_every_case_has_one() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.json")} == {case.lower().replace(" ", "-") for case in CASES}


def test_without_the_right_to_read_nodes_a_waiting_job_is_still_explained() -> None:
    cause = explain(replace(recording("no spot node"), nodes=None))
    assert cause is not None
    assert (cause.code, "cannot be read with these rights" in cause.remedy) == ("unschedulable", True)


def test_a_job_that_runs_or_has_completed_needs_no_explanation() -> None:
    ready = tuple(make_pod(s, h, conditions=(condition("Ready"),)) for s in range(2) for h in range(2))
    assert explain(Observation(make_jobset(ready=2), pods=ready, now=NOW)) is None
    assert explain(Observation(make_jobset(conditions=(condition("Completed"),)), now=NOW)) is None


def test_followers_are_not_blamed_when_the_leader_of_the_slice_finds_no_node() -> None:
    observed = recording("leader of a slice without nodes")
    cause = explain(observed)
    assert any("follower pod node selector" in event.message for event in observed.events)
    assert cause is not None
    assert "-2-0-" in cause.about or "slice 2" in cause.cause or cause.code == "no-free-pool"


@pytest.mark.parametrize(
    ("reason", "code", "is_fault"),
    [
        ("TriggeredScaleUp", "scale-up", False),
        ("FailedScaleUp", "scale-up-failed", True),
        ("NotTriggerScaleUp", "no-such-node", True),
    ],
)
def test_the_autoscaler_has_the_last_word_on_a_pod_without_a_node(reason: str, code: str, is_fault: bool) -> None:
    observed = recording("no spot node")
    event = make_event(observed.pods[0], reason, "pool-1 0->2")
    cause = explain(replace(observed, events=(*observed.events, event)))
    assert cause is not None
    assert (cause.code, cause.is_fault) == (code, is_fault)
    assert "pool-1 0->2" in cause.evidence


def test_a_node_that_went_silent_or_away_is_named_with_its_host() -> None:
    observed = recording("user error")
    pods = tuple(make_pod(0, h, node=f"node-{h}", conditions=(condition("Ready"),)) for h in range(2))
    silent = {"kind": "Node", "metadata": {"name": "node-1"}, "status": {"conditions": [condition("Ready", "Unknown")]}}
    fine = {"kind": "Node", "metadata": {"name": "node-0"}, "status": {"conditions": [condition("Ready")]}}
    for nodes, words in (
        ((fine, silent), "node node-1 of host 0/1 is not ready"),
        ((fine,), "node node-1 of host 0/1 is gone"),
    ):
        cause = explain(Observation(make_jobset(slices=1), pods=pods, nodes=nodes, now=NOW))
        assert cause is not None
        assert (cause.code, cause.cause, cause.is_fault) == ("node-lost", words, False)
    assert observed.nodes


def test_the_first_host_that_failed_is_named_and_not_those_ended_because_of_it() -> None:
    pods = (
        make_pod(0, 0, phase="Failed", containers=(terminated(143, at="2026-03-01T11:58:00Z"),)),
        make_pod(
            0, 1, phase="Failed", containers=(terminated(1, at="2026-03-01T11:58:01Z", message="KeyError: text"),)
        ),
        make_pod(1, 0, phase="Failed", containers=(terminated(134, at="2026-03-01T11:58:30Z"),)),
    )
    cause = explain(Observation(make_jobset(conditions=(condition("Failed"),)), pods=pods, now=NOW))
    assert cause is not None
    assert cause.cause == "host 0/1 was the first to fail, with exit code 1: KeyError: text"


def test_hosts_that_fail_together_point_to_the_one_that_is_at_fault() -> None:
    peer = '{"severity":"ERROR","reason":"PreflightError","failed_host":"1/1","message":"host 1/1: 7 files"}'
    own = '{"severity":"ERROR","event":"end","reason":"PreflightError","message":"7 files; wanted 8"}'
    pods = (
        make_pod(0, 0, phase="Failed", containers=(terminated(3, at="2026-03-01T11:58:00Z", message=peer),)),
        make_pod(1, 1, phase="Failed", containers=(terminated(3, at="2026-03-01T11:58:01Z", message=own),)),
    )
    cause = explain(Observation(make_jobset(conditions=(condition("Failed"),)), pods=pods, now=NOW))
    assert cause is not None
    assert cause.cause == "preflight refused the job on host 1/1: 7 files; wanted 8"
    # The pod at fault has not ended yet, or is gone with its job: the words of the others still name it.
    cause = explain(Observation(make_jobset(conditions=(condition("Failed"),)), pods=pods[:1], now=NOW))
    assert cause is not None
    assert cause.cause == "preflight refused the job on host 1/1: 7 files"


def test_a_pod_that_was_taken_away_is_no_fault_of_the_job() -> None:
    lost = make_pod(0, 1, phase="Failed", conditions=(condition("DisruptionTarget", reason="DeletionByTaintManager"),))
    cause = explain(Observation(make_jobset(), pods=(lost,), now=NOW))
    assert cause is not None
    assert (cause.code, cause.is_fault) == ("disrupted", False)
    assert "its node was lost" in cause.cause


def test_the_jobs_own_words_name_the_host_when_its_pods_are_gone() -> None:
    words = (
        "Container worker for pod ml/tiny-slice-1-0-x2x3x failed with exit code 134 matching FailJob rule at index 1"
    )
    job = {
        "kind": "Job",
        "metadata": {"name": "tiny-slice-1"},
        "status": {"conditions": [condition("Failed", message=words)]},
    }
    cause = explain(Observation(make_jobset(conditions=(condition("Failed"),)), jobs=(job,), now=NOW))
    assert cause is not None
    assert cause.cause.startswith("host 1/0 was the first to fail, with exit code 134")


def test_a_jobset_that_nothing_acts_on_points_to_its_controller_after_a_while() -> None:
    jobset = make_jobset()
    jobset["status"] = {}
    cause = explain(Observation(jobset, now=NOW))
    assert cause is not None
    assert cause.code == "controller-absent"
    fresh = explain(Observation(jobset, now=NOW - timedelta(minutes=10)))
    assert fresh is not None
    assert fresh.code == "starting"
