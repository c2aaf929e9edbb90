"""A difference is what we set and what is now otherwise; what others add is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tpulaunch.cluster.diff import adopt, differences, is_immutable, unified
from tpulaunch.cluster.objects import Object
from tpulaunch.cluster.ownership import format_path


def make_wanted(**pod: Any) -> Object:
    container = {
        "name": "worker",
        "image": "worker:1",
        "env": [{"name": "MODE", "value": "offline"}, {"name": "HF_TOKEN", "value": "hf_abcdefghijklmnop"}],
        "ports": [{"name": "metrics", "containerPort": 8431}],
        "resources": {"limits": {"google.com/tpu": 4, "memory": "1024Mi"}},
    }
    pod_spec = {
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x4"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        **pod,
    }
    pod_template = {"metadata": {"annotations": {"tpulaunch.dev/spec": "a: 1\nb: 2\n"}}, "spec": pod_spec}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "tiny", "namespace": "ml", "labels": {"team": "lm"}},
        "spec": {
            "ttlSecondsAfterFinished": 60,
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [
                {"name": "slice", "replicas": 2, "template": {"spec": {"backoffLimit": 0, "template": pod_template}}}
            ],
        },
    }


def pod_spec_of(jobset: Object) -> dict[str, Any]:
    spec: dict[str, Any] = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def fields_of(value: Any) -> dict[str, Any]:
    """``fieldsV1`` as the server would note them for an apply of ``value``."""
    if isinstance(value, dict):
        return {f"f:{key}": fields_of(item) for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
        return {f'k:{{"name":"{item["name"]}"}}': fields_of(item) for item in value}
    return {}


def make_live(wanted: Object) -> Object:
    """As the server keeps it: defaults, Kueue's selector and toleration, status, managed fields."""
    live = copy.deepcopy(wanted)
    owned = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    entry = {"manager": "tpulaunch", "operation": "Apply", "fieldsV1": fields_of(owned)}
    kueue = {"manager": "kueue", "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}}
    live["metadata"] |= {"uid": "u1", "resourceVersion": "7", "managedFields": [entry, kueue]}
    live["spec"] |= {"suspend": False, "network": {"enableDNSHostnames": True}}
    pod = pod_spec_of(live)
    pod["nodeSelector"]["cloud.google.com/gke-nodepool"] = "a"
    pod["tolerations"] = [*pod["tolerations"], {"key": "kueue", "operator": "Exists"}]
    pod["containers"][0]["ports"][0]["protocol"] = "TCP"
    pod["containers"][0]["resources"]["limits"] = {"google.com/tpu": "4", "memory": "1Gi"}
    pod["schedulerName"] = "default-scheduler"
    live["status"] = {"restarts": 1}
    return live


def test_defaults_and_what_kueue_and_webhooks_add_are_no_difference() -> None:
    wanted = make_wanted()
    live = make_live(wanted)
    assert differences(live, wanted) == ()
    assert unified(live, wanted, "live", "job.yaml") == ""


def test_a_changed_value_is_shown_with_its_path() -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    pod_spec_of(wanted)["containers"][0]["image"] = "worker:2"
    (found,) = differences(live, wanted)
    path = "spec.replicatedJobs[name=slice].template.spec.template.spec.containers[name=worker].image"
    assert (format_path(found.path), found.kind, found.is_immutable) == (path, "changed", True)
    assert found.describe() == f"{path}: 'worker:1' -> 'worker:2'"


def test_what_we_set_once_and_no_longer_want_is_removed_and_what_others_set_is_not() -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    del wanted["metadata"]["labels"]["team"]
    wanted["metadata"]["labels"]["new"] = "x"
    live["metadata"]["labels"]["theirs"] = "y"
    found = {(format_path(d.path), d.kind) for d in differences(live, wanted)}
    assert found == {("metadata.labels.team", "removed"), ("metadata.labels.new", "added")}


def test_a_variable_taken_out_of_the_spec_is_found_among_the_others() -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    del pod_spec_of(wanted)["containers"][0]["env"][0]
    (found,) = differences(live, wanted)
    assert format_path(found.path).endswith("env[name=MODE]")
    assert found.kind == "removed"


def test_a_field_that_another_manager_changed_names_it() -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    live["spec"]["ttlSecondsAfterFinished"] = 5
    live["metadata"]["managedFields"].append(
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:ttlSecondsAfterFinished": {}}}}
    )
    (found,) = differences(live, wanted)
    assert (found.owners, found.is_immutable) == (("kubectl-edit",), False)
    assert found.describe() == "spec.ttlSecondsAfterFinished: 5 -> 60 (set by kubectl-edit)"


@pytest.mark.parametrize("shown", ["describe", "unified"])
def test_secrets_are_masked_on_both_sides_and_their_change_is_still_told(shown: str) -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    pod_spec_of(wanted)["containers"][0]["env"][1]["value"] = "hf_zyxwvutsrqponmlk"
    text = (
        "\n".join(d.describe() for d in differences(live, wanted))
        if shown == "describe"
        else unified(live, wanted, "live", "job.yaml")
    )
    assert "hf_" not in text
    assert "HF_TOKEN" in text
    assert "***" in text


def test_the_unified_diff_shows_the_embedded_spec_line_by_line() -> None:
    live, wanted = make_live(make_wanted()), make_wanted()
    template = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"]["annotations"]["tpulaunch.dev/spec"] = "a: 1\nb: 3\n"
    lines = [line.strip("+- ") for line in unified(live, wanted, "live", "job.yaml").splitlines() if line[:1] in "+-"]
    assert lines == ["live", "job.yaml", "b: 2", "b: 3"]


def test_against_nothing_everything_is_added() -> None:
    lines = unified(None, make_wanted(), "live", "job.yaml").splitlines()
    assert all(line.startswith(("+", "---", "@@")) for line in lines)


@pytest.mark.parametrize(
    ("path", "running", "suspended"),
    [
        (("spec", "replicatedJobs", (("name", "slice"),), "replicas"), True, True),
        (
            (
                "spec",
                "replicatedJobs",
                (("name", "slice"),),
                "template",
                "spec",
                "template",
                "metadata",
                "annotations",
                "x",
            ),
            True,
            False,
        ),
        (
            (
                "spec",
                "replicatedJobs",
                (("name", "slice"),),
                "template",
                "spec",
                "template",
                "spec",
                "nodeSelector",
                "x",
            ),
            True,
            False,
        ),
        (
            ("spec", "replicatedJobs", (("name", "slice"),), "template", "spec", "template", "spec", "containers"),
            True,
            True,
        ),
        (("spec", "failurePolicy", "maxRestarts"), True, True),
        (("spec", "ttlSecondsAfterFinished"), False, False),
        (("metadata", "labels", "team"), False, False),
        (("metadata", "labels", "kueue.x-k8s.io/queue-name"), True, False),
    ],
)
def test_what_jobset_makes_immutable_is_known(path: tuple[Any, ...], running: bool, suspended: bool) -> None:
    assert is_immutable(path, is_suspended=False) is running
    assert is_immutable(path, is_suspended=True) is suspended


def test_an_apply_takes_over_lists_to_which_a_controller_has_added() -> None:
    wanted = make_wanted()
    live = make_live(wanted)
    assert pod_spec_of(adopt(live, wanted))["tolerations"] == pod_spec_of(live)["tolerations"]
    wanted_other = make_wanted(tolerations=[{"key": "spot", "operator": "Exists"}])
    assert pod_spec_of(adopt(live, wanted_other))["tolerations"] == [{"key": "spot", "operator": "Exists"}]
