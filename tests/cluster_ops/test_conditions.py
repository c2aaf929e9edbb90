"""Phases are read from conditions by type and truth, whatever their order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.cluster_ops.builders import condition, make_jobset, make_pod, terminated, waiting
from tpulaunch.cluster.conditions import HostPhase, Phase, condition_of, holds, host_phase_of, is_ready_node, phase_of
from tpulaunch.cluster.objects import Object

COMPLETED, FAILED = condition("Completed"), condition("Failed")
SUSPENDED, RESUMED = condition("Suspended"), condition("Suspended", "False", "ResumeJobs")
RESTARTING = condition("RestartingJobSet")
NOT_FAILED = condition("Failed", "False")

TRUTH_TABLE = [
    ("nothing yet", make_jobset(), Phase.STARTING),
    ("some slices ready", make_jobset(ready=1), Phase.STARTING),
    ("all slices ready", make_jobset(ready=2), Phase.RUNNING),
    ("resumed by Kueue and ready", make_jobset(ready=2, suspend=False, conditions=(RESUMED,)), Phase.RUNNING),
    ("suspended in a queue", make_jobset(suspend=True, queue="tpu", conditions=(SUSPENDED,)), Phase.QUEUED),
    ("suspended, condition not yet there", make_jobset(suspend=True, queue="tpu"), Phase.QUEUED),
    ("resumed, condition not yet gone", make_jobset(suspend=False, conditions=(SUSPENDED,)), Phase.STARTING),
    ("suspended by hand", make_jobset(suspend=True, conditions=(SUSPENDED,)), Phase.SUSPENDED),
    ("restarting", make_jobset(conditions=(RESTARTING,)), Phase.RESTARTING),
    ("completed", make_jobset(conditions=(COMPLETED,)), Phase.COMPLETED),
    ("completed while suspended once", make_jobset(conditions=(RESUMED, COMPLETED)), Phase.COMPLETED),
    ("failed", make_jobset(conditions=(FAILED,)), Phase.FAILED),
    ("a Failed condition that is False", make_jobset(ready=2, conditions=(NOT_FAILED,)), Phase.RUNNING),
    (
        "failed after completing conditions",
        make_jobset(conditions=(condition("Completed", "False"), FAILED)),
        Phase.FAILED,
    ),
    ("terminal state without a condition", make_jobset(terminalState="Failed"), Phase.FAILED),
    ("unknown is not true", make_jobset(conditions=(condition("Completed", "Unknown"),)), Phase.STARTING),
]


@pytest.mark.parametrize(("jobset", "phase"), [row[1:] for row in TRUTH_TABLE], ids=[row[0] for row in TRUTH_TABLE])
def test_the_phase_of_a_jobset_follows_the_truth_table(jobset: Object, phase: Phase) -> None:
    assert phase_of(jobset) is phase


def test_the_order_of_conditions_plays_no_part() -> None:
    several = (RESUMED, NOT_FAILED, COMPLETED, condition("StartupPolicyCompleted"))
    phases = {phase_of(make_jobset(conditions=order)) for order in itertools.permutations(several)}
    assert phases == {Phase.COMPLETED}


def test_a_job_on_its_way_out_is_deleting_unless_it_has_ended() -> None:
    running, ended = make_jobset(ready=2), make_jobset(conditions=(COMPLETED,))
    for jobset in (running, ended):
        jobset["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert phase_of(running) is Phase.DELETING
    assert phase_of(ended) is Phase.COMPLETED


HOSTS: list[tuple[str, Object | None, HostPhase]] = [
    ("no pod", None, HostPhase.ABSENT),
    (
        "no node fits",
        make_pod(phase="Pending", node=None, conditions=(condition("PodScheduled", "False", "Unschedulable"),)),
        HostPhase.UNSCHEDULABLE,
    ),
    (
        "held back by a gate",
        make_pod(phase="Pending", node=None, conditions=(condition("PodScheduled", "False", "SchedulingGated"),)),
        HostPhase.PENDING,
    ),
    ("being made", make_pod(phase="Pending", containers=(waiting("ContainerCreating"),)), HostPhase.PENDING),
    ("image cannot be pulled", make_pod(phase="Pending", containers=(waiting("ImagePullBackOff"),)), HostPhase.BLOCKED),
    ("running, not ready", make_pod(conditions=(condition("Ready", "False"),)), HostPhase.STARTED),
    ("ready", make_pod(conditions=(condition("Ready"),)), HostPhase.READY),
    ("succeeded", make_pod(phase="Succeeded"), HostPhase.SUCCEEDED),
    ("failed", make_pod(phase="Failed", containers=(terminated(1),)), HostPhase.FAILED),
    ("kubelet silent", make_pod(phase="Unknown"), HostPhase.LOST),
    ("ending", make_pod(metadata={"deletionTimestamp": "2026-03-01T12:00:00Z"}), HostPhase.ENDING),
]


@pytest.mark.parametrize(("pod", "phase"), [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
def test_the_phase_of_a_host_follows_the_truth_table(pod: Object | None, phase: HostPhase) -> None:
    assert host_phase_of(pod) is phase


@pytest.mark.parametrize(("status", "is_true"), [("True", True), ("False", False), ("Unknown", False)])
def test_only_true_holds(status: str, is_true: bool) -> None:
    obj: dict[str, Any] = {"status": {"conditions": [condition("Ready", status)]}}
    assert holds(obj, "Ready") is is_true
    assert is_ready_node(obj) is is_true
    assert not holds(obj, "Absent")
    assert condition_of({}, "Ready") is None
