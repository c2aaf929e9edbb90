"""The samples that an administrator applies once are valid, and fit what the launcher renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.launcher.builders import plan_of
from tests.manifests.schemas import faults_of

SAMPLES = sorted((Path(__file__).parents[2] / "manifests/samples").glob("*.yaml"))


def objects(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def sample(name: str, kind: str) -> dict[str, Any]:
    (path,) = [path for path in SAMPLES if path.stem == name]
    return next(value for value in objects(path) if value["kind"] == kind)


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.stem != "metrics"], ids=lambda path: path.stem)
def test_a_sample_is_valid_by_the_schemas_of_the_cluster(path: Path, go: None) -> None:
    assert [fault for value in objects(path) for fault in faults_of(value)] == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_explains_itself(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_the_metrics_sample_selects_the_workers_and_a_port_they_declare() -> None:
    monitoring, plan = sample("metrics", "PodMonitoring"), plan_of()
    selector = monitoring["spec"]["selector"]["matchLabels"]
    assert selector.items() <= dict(plan.pod_labels).items()
    assert monitoring["spec"]["endpoints"][0]["port"] in {port.name for port in plan.container.ports}


@pytest.mark.parametrize("name", ["kueue-queues", "kueue-queued-capacity"])
def test_a_queue_covers_every_resource_that_a_job_requests(name: str) -> None:
    groups = sample(name, "ClusterQueue")["spec"]["resourceGroups"]
    assert {resource for group in groups for resource in group["coveredResources"]} == {"google.com/tpu", "memory"}
    assert sample(name, "LocalQueue")["spec"]["clusterQueue"] == sample(name, "ClusterQueue")["metadata"]["name"]


def test_submitting_needs_no_right_outside_the_namespace() -> None:
    rules = sample("rbac", "Role")["rules"]
    rights = {
        (group, resource): rule["verbs"]
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {"get", "create", "patch", "delete"} <= set(rights["jobset.x-k8s.io", "jobsets"])
    assert all(
        verb in ("get", "list", "watch") for rule in sample("rbac", "ClusterRole")["rules"] for verb in rule["verbs"]
    )
