"""Pods get the TPU variables GKE gives them. The vectors are those of the device plugin's own table test."""

from __future__ import annotations

import pytest

from tests.cluster.api import Object
from tests.cluster.cluster import Cluster
from tests.cluster.workloads import container, jobset, pod

pytestmark = pytest.mark.cluster

F3, T3 = "false,false,false", "true,true,true"
V4, V5E, V5P, V6E, V7X = "tpu-v4-podslice", "tpu-v5-lite-podslice", "tpu-v5p-slice", "tpu-v6e-slice", "tpu7x"
FOUR, EIGHT = "8431,8432,8433,8434", "8431,8432,8433,8434,8435,8436,8437,8438"

Vector = tuple[str, str, int, str, str, str, str, bool, str]
# accelerator, topology, chips per node | type, host bounds, chips per host bounds, wrap, is it alone, metrics ports
VECTORS: list[Vector] = [
    (V4, "2x2x1", 4, "v4-8", "1,1,1", "2,2,1", F3, True, FOUR),
    (V4, "2x2x2", 4, "v4-16", "1,1,2", "2,2,1", F3, False, FOUR),
    (V4, "4x4x4", 4, "v4-128", "2,2,4", "2,2,1", T3, False, FOUR),
    (V5E, "1x1", 1, "v5litepod-1", "1,1,1", "1,1,1", F3, True, "8431"),
    (V5E, "2x4", 4, "v5litepod-8", "1,2,1", "2,2,1", F3, False, FOUR),
    (V5E, "2x4", 8, "v5litepod-8", "1,1,1", "2,4,1", F3, True, EIGHT),
    (V5E, "8x16", 4, "v5litepod-128", "4,8,1", "2,2,1", "false,true,false", False, FOUR),
    (V5P, "2x2x4", 4, "v5p-32", "1,1,4", "2,2,1", F3, False, FOUR),
    (V5P, "2x4x4", 4, "v5p-64", "1,2,4", "2,2,1", F3, False, FOUR),
    (V6E, "4x4", 4, "v6e-16", "2,2,1", "2,2,1", F3, False, FOUR),
    (V6E, "16x16", 4, "v6e-256", "8,8,1", "2,2,1", "true,true,false", False, FOUR),
    (V7X, "1x1x1", 1, "tpu7x-2", "1,1,1", "1,1,1", F3, False, "8431,8432"),
    (V7X, "2x2x1", 4, "tpu7x-8", "1,1,1", "2,2,1", F3, False, EIGHT),
    (V7X, "12x24x24", 4, "tpu7x-13824", "6,12,24", "2,2,1", T3, False, EIGHT),
]


def _environment(made: Object, index: int = 0) -> dict[str, str]:
    given = made["spec"]["containers"][index].get("env", [])
    return {each["name"]: each["value"] for each in given if "value" in each}


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{row[3]}-{row[2]}t" for row in VECTORS])
def test_a_pod_gets_the_variables_of_the_device_plugin(cluster: Cluster, vector: Vector) -> None:
    accelerator, topology, chips, kind, hosts, host, wrap, is_alone, ports = vector
    cluster.require("tpu-policies")
    wanted = pod("vector", container(cluster.busybox, "true", chips), accelerator=accelerator, topology=topology)
    seen = _environment(cluster.create(wanted, "default", dry_run=True))
    expected = {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_ACCELERATOR_TYPE": kind,
        "TPU_TOPOLOGY": topology,
        "TPU_TOPOLOGY_ALT": "false",
        "ALT": "false",
        "TPU_TOPOLOGY_WRAP": wrap,
        "WRAP": wrap,
        "TPU_HOST_BOUNDS": hosts,
        "HOST_BOUNDS": hosts,
        "TPU_CHIPS_PER_HOST_BOUNDS": host,
        "CHIPS_PER_HOST_BOUNDS": host,
        "TPU_RUNTIME_METRICS_PORTS": ports,
    }
    if is_alone:
        expected |= {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    if wrap == T3:
        expected["ENABLE_ICI_RESILIENCY"] = "true"
    assert seen == expected


def test_two_containers_of_a_7x_host_each_see_their_half(cluster: Cluster) -> None:
    cluster.require("tpu-policies")
    halves = [container(cluster.busybox, "true", 2), {**container(cluster.busybox, "true", 2), "name": "other"}]
    made = cluster.create(pod("halves", *halves, accelerator=V7X, topology="2x2x1"), "default", dry_run=True)
    for index in (0, 1):
        seen = _environment(made, index)
        assert (seen["TPU_HOST_BOUNDS"], seen["TPU_CHIPS_PER_HOST_BOUNDS"]) == ("2,1,1", "1,2,1")
        assert seen["TPU_RUNTIME_METRICS_PORTS"] == EIGHT


def test_a_variable_that_the_pod_sets_itself_is_left_alone(cluster: Cluster) -> None:
    cluster.require("tpu-policies")
    own = [{"name": "TPU_TOPOLOGY", "value": "mine"}, {"name": "OTHER", "value": "1"}]
    made = cluster.create(pod("own", container(cluster.busybox, "true", env=own)), "default", dry_run=True)
    names = [each["name"] for each in made["spec"]["containers"][0]["env"]]
    assert names.count("TPU_TOPOLOGY") == 1
    assert (_environment(made)["TPU_TOPOLOGY"], _environment(made)["OTHER"]) == ("mine", "1")


def test_a_container_without_chips_gets_no_variables(cluster: Cluster) -> None:
    cluster.require("tpu-policies")
    sidecar = {**container(cluster.busybox, "true", 0), "name": "sidecar"}
    made = cluster.create(pod("pair", container(cluster.busybox, "true"), sidecar), "default", dry_run=True)
    assert _environment(made, 1) == {}
    assert "TPU_TOPOLOGY" in _environment(made, 0)


def test_each_host_of_a_jobset_gets_its_number_its_peers_and_its_slice(cluster: Cluster, namespace: str) -> None:
    cluster.require("jobset", "tpu-policies")
    # No node has such chips, so the pods only wait; what they were given can be read.
    waiting = pod("host", container(cluster.busybox, "true"), accelerator=V5P, topology="2x2x2")
    cluster.apply(jobset("js", waiting, slices=2, hosts=2, exclusive=False), namespace)
    cluster.wait_for("Job", "js-slice-1", namespace, until=lambda job: job.get("status", {}).get("active") == 2)
    cluster.wait_for("Job", "js-slice-0", namespace, until=lambda job: job.get("status", {}).get("active") == 2)
    given = {}
    for each in cluster.list("Pod", namespace):
        seen = _environment(each)
        given[each["spec"]["hostname"]] = tuple(
            seen[name]
            for name in ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
        )
        assert seen["MEGASCALE_COORDINATOR_ADDRESS"] == "js-slice-0-0.js"
    assert given == {
        "js-slice-0-0": ("0", "js-slice-0-0.js,js-slice-0-1.js", "2", "0"),
        "js-slice-0-1": ("1", "js-slice-0-0.js,js-slice-0-1.js", "2", "0"),
        "js-slice-1-0": ("0", "js-slice-1-0.js,js-slice-1-1.js", "2", "1"),
        "js-slice-1-1": ("1", "js-slice-1-0.js,js-slice-1-1.js", "2", "1"),
    }


def test_a_jobset_of_one_slice_gets_no_megascale_variables(cluster: Cluster, namespace: str) -> None:
    cluster.require("jobset", "tpu-policies")
    waiting = pod("host", container(cluster.busybox, "true"), accelerator=V7X, topology="2x2x1")
    cluster.apply(jobset("one", waiting, slices=1, hosts=1, exclusive=False), namespace)
    cluster.wait_for("Job", "one-slice-0", namespace, until=lambda job: job.get("status", {}).get("active") == 1)
    [made] = cluster.list("Pod", namespace)
    seen = _environment(made)
    assert not [name for name in seen if name.startswith("MEGASCALE")]
    # From 7x on even a single host is numbered by the webhook, not by the device plugin.
    assert (seen["TPU_WORKER_ID"], seen["TPU_WORKER_HOSTNAMES"]) == ("0", "one-slice-0-0.one")
