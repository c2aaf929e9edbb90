from __future__ import annotations

from typing import Any

import pytest

from tests.launcher.builders import plan_of, refusals_of, refused_paths
from tpulaunch.plan.values import Toleration

OWN = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
TPU = Toleration("google.com/tpu", None)


def gke(**pairs: str) -> dict[str, str]:
    return {f"cloud.google.com/{key.replace('_', '-')}": value for key, value in pairs.items()}


@pytest.mark.parametrize(
    ("schedule", "selector", "taint"),
    [
        ({}, {}, None),
        ({"capacity": "spot"}, gke(gke_spot="true"), "gke-spot"),
        ({"capacity": "flex-start"}, gke(gke_flex_start="true"), "gke-flex-start"),
        (
            {"capacity": "flex-start", "max_run_seconds": 600},
            gke(gke_flex_start="true", gke_max_run_duration_seconds="600"),
            "gke-flex-start",
        ),
        ({"capacity": "queued", "queue": "dws"}, gke(gke_queued="true"), "gke-queued"),
        ({"capacity": "reservation", "reservation": {"name": "r"}}, gke(reservation_name="r"), None),
        (
            {
                "capacity": "reservation",
                "reservation": {"name": "r", "project": "p", "block": "b", "sub_block": "s", "affinity": "specific"},
            },
            gke(
                reservation_name="r",
                reservation_project="p",
                reservation_blocks="b",
                reservation_subblocks="s",
                reservation_affinity="specific",
            ),
            None,
        ),
        ({"placement_policy": "pp"}, gke(placement_policy_name="pp"), None),
    ],
)
def test_an_option_brings_its_selector_and_its_toleration(
    schedule: dict[str, Any], selector: dict[str, str], taint: str | None
) -> None:
    plan = plan_of(schedule=schedule)
    assert dict(plan.node_selector) == OWN | selector
    borne = () if taint is None else (Toleration(f"cloud.google.com/{taint}", "true"),)
    assert plan.tolerations == (TPU, *borne)


def test_a_compute_class_replaces_the_labels_of_capacity() -> None:
    plan = plan_of(schedule={"compute_class": "tpus"})
    assert dict(plan.node_selector) == OWN | gke(compute_class="tpus")
    assert refused_paths(schedule={"compute_class": "tpus", "capacity": "spot"}) == ["spec.schedule.compute_class"]


def test_queued_capacity_hands_its_limit_to_the_provisioning_request() -> None:
    plan = plan_of(schedule={"capacity": "queued", "queue": "dws", "max_run_seconds": 3600})
    assert dict(plan.annotations)["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "3600"
    assert "cloud.google.com/gke-max-run-duration-seconds" not in dict(plan.node_selector)
    assert plan.active_deadline_seconds == 3600


@pytest.mark.parametrize("capacity", ["flex-start", "queued"])
def test_a_generation_without_the_workload_scheduler_is_refused(capacity: str) -> None:
    sections = {"slice": {"generation": "v4", "topology": "2x2x4"}, "schedule": {"capacity": capacity, "queue": "q"}}
    (fault,) = refusals_of(**sections)
    assert fault.path == "spec.schedule.capacity"
    assert "v4" in fault.wanted


@pytest.mark.parametrize(
    ("schedule", "path"),
    [
        ({"capacity": "queued"}, "spec.schedule.queue"),
        ({"capacity": "reservation"}, "spec.schedule.reservation"),
        ({"reservation": {"name": "r"}}, "spec.schedule.reservation"),
        ({"priority": "high"}, "spec.schedule.priority"),
        ({"capacity": "flex-start", "max_run_seconds": 599}, "spec.schedule.max_run_seconds"),
        ({"capacity": "flex-start", "max_run_seconds": 604_801}, "spec.schedule.max_run_seconds"),
        ({"max_run_seconds": 29}, "spec.schedule.max_run_seconds"),
        ({"grace_seconds": 3601}, "spec.schedule.grace_seconds"),
        ({"queue": "no such queue"}, "spec.schedule.queue"),
    ],
)
def test_options_that_contradict_each_other_are_refused(schedule: dict[str, Any], path: str) -> None:
    assert refused_paths(schedule=schedule) == [path]


def test_all_faults_of_a_section_come_at_once() -> None:
    paths = refused_paths(schedule={"capacity": "queued", "priority": "high", "max_run_seconds": 1})
    assert sorted(paths) == ["spec.schedule.max_run_seconds", "spec.schedule.priority", "spec.schedule.queue"]
