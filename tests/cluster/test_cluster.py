"""The cluster does what the end-to-end tests rely on: it schedules, runs, queues, resolves names and loses nodes."""

from __future__ import annotations

import pytest

from tests.cluster import cgroups
from tests.cluster.add_ons import unserved
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.patience import Patience
from tests.cluster.pools import ACCELERATOR, CHIP, v6e
from tests.cluster.workloads import container, jobset, pod

pytestmark = pytest.mark.cluster

# Every host serves its name, reads every other host's name, tells the coordinator, and stays until the coordinator
# left.
MEET = """
cd /tmp && mkdir cgi-bin done && hostname > name
echo '#!/bin/sh
touch "/tmp/done/$QUERY_STRING"
printf "Content-Type: text/plain\\r\\n\\r\\nok"' > cgi-bin/done
chmod +x cgi-bin/done
httpd -p 8471 -h /tmp
for slice in 0 1; do for host in 0 1; do
    peer="meet-slice-$slice-$host.meet"
    until wget -qO- "http://$peer:8471/name"; do sleep 0.2; done
done; done
coordinator="$MEGASCALE_COORDINATOR_ADDRESS"
if [ "$(hostname).meet" = "$coordinator" ]; then
    until [ "$(ls done | wc -l)" = 3 ]; do sleep 0.2; done
else
    wget -qO- "http://$coordinator:8471/cgi-bin/done?$(hostname)" || true  # it may be gone before it answers
    while wget -qO- "http://$coordinator:8471/name" > /dev/null; do sleep 0.2; done
fi
"""


def test_a_jobset_of_two_slices_runs_to_completed_and_all_hosts_reach_each_other_by_name(
    cluster: Cluster, namespace: str
) -> None:
    cluster.require("jobset", "tpu-nodes", "tpu-injection")
    cluster.apply(jobset("meet", pod("host", container(cluster.busybox, MEET))), namespace)
    cluster.wait_for("JobSet", "meet", namespace, condition="Completed")
    pods = cluster.list("Pod", namespace)
    names = {"meet-slice-0-0", "meet-slice-0-1", "meet-slice-1-0", "meet-slice-1-1"}
    assert {each["spec"]["hostname"] for each in pods} == names
    for each in pods:
        assert names <= set(cluster.logs(each["metadata"]["name"], namespace).split())
    nodes = {each["spec"]["hostname"]: each["spec"]["nodeName"] for each in pods}
    assert len(set(nodes.values())) == 4
    # One slice, one node pool.
    pool = {host: node.rpartition("-")[0] for host, node in nodes.items()}
    assert pool["meet-slice-0-0"] == pool["meet-slice-0-1"] != pool["meet-slice-1-0"] == pool["meet-slice-1-1"]


def test_kueue_admits_a_queued_jobset_and_it_completes(cluster: Cluster, namespace: str, queue: str) -> None:
    cluster.require("jobset", "tpu-nodes")
    wanted = jobset("queued", pod("host", container(cluster.busybox, "true")), slices=1, queue=queue)
    cluster.apply(wanted, namespace)
    cluster.wait_for("JobSet", "queued", namespace, condition="Completed")
    [workload] = cluster.list("Workload", namespace)
    reasons = {each["type"]: each["status"] for each in workload["status"]["conditions"]}
    assert reasons["Admitted"] == "True"
    assert workload["status"]["admission"]["podSetAssignments"][0]["flavors"][CHIP] == "v6e"


def test_kueue_holds_a_jobset_back_that_wants_more_chips_than_the_quota(cluster: Cluster, namespace: str) -> None:
    cluster.require("jobset", "kueue")
    queue = cluster.make_queue(namespace, "small", chips=4)
    wanted = jobset("big", pod("host", container(cluster.busybox, "true")), slices=1, hosts=2, queue=queue)
    cluster.apply(wanted, namespace)
    cluster.wait_for("JobSet", "big", namespace, condition="Suspended")
    [workload] = cluster.list("Workload", namespace)
    held = cluster.wait_for(
        "Workload",
        workload["metadata"]["name"],
        namespace,
        until=lambda seen: bool(seen.get("status", {}).get("conditions")),
    )
    [reserved] = [each for each in held["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert reserved["status"] == "False"
    assert CHIP in reserved["message"]
    assert cluster.list("Pod", namespace) == []


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (pod("untolerating", container("busybox", "true"), tolerations=()), "untolerated taint"),
        (pod("greedy", container("busybox", "true", chips=8)), f"Insufficient {CHIP}"),
        (
            pod("elsewhere", container("busybox", "true"), accelerator="tpu-v5p-slice", topology="2x2x1"),
            "node affinity/selector",
        ),
    ],
    ids=["taint", "chips", "labels"],
)
def test_a_pod_stays_off_nodes_without_what_it_needs(
    cluster: Cluster, namespace: str, wanted: Object, why: str
) -> None:
    cluster.require("tpu-nodes")
    name = wanted["metadata"]["name"]
    cluster.create(wanted, namespace)

    def is_refused(seen: Object) -> bool:
        conditions = seen.get("status", {}).get("conditions", [])
        return any(each["type"] == "PodScheduled" and why in each.get("message", "") for each in conditions)

    cluster.wait_for("Pod", name, namespace, until=is_refused)
    assert "nodeName" not in cluster.get("Pod", name, namespace)["spec"]


def test_a_pod_that_outgrows_its_memory_is_killed_by_the_kernel(cluster: Cluster, namespace: str) -> None:
    cluster.require("tpu-nodes")
    grow = container(cluster.busybox, "tail -c 200m /dev/zero", resources={"limits": {CHIP: "4", "memory": "64Mi"}})
    cluster.create(pod("grows", grow), namespace)
    ended = cluster.wait_for("Pod", "grows", namespace, until=lambda seen: seen["status"]["phase"] == "Failed")
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)


def test_slices_larger_than_this_host_are_scheduled_on_fake_nodes(own: OwnCluster, namespace: str) -> None:
    names = own.add_nodes([v6e("wide", "8x8", hosts=16, real=False)])
    try:
        wanted = jobset("wide", pod("host", container(own.busybox, "true"), topology="8x8"), slices=1, hosts=16)
        own.apply(wanted, namespace)
        own.wait_for("Job", "wide-slice-0", namespace, until=lambda job: job.get("status", {}).get("active") == 16)
        for each in own.list("Pod", namespace):
            own.wait_for("Pod", each["metadata"]["name"], namespace, condition="PodScheduled")
        assert {each["spec"]["nodeName"] for each in own.list("Pod", namespace)} == set(names)
    finally:
        for name in names:
            own.remove_node(name)


def test_a_node_without_power_is_found_dead_its_pod_is_deleted_and_it_comes_back(
    own: OwnCluster, namespace: str
) -> None:
    own.create(pod("lost", container(own.busybox, "sleep 1000"), nodeName="v6e-b-1"), namespace)
    own.wait_for("Pod", "lost", namespace, condition="Ready")
    containers = cgroups.containers_of(own.directory / "nodes" / "v6e-b-1")
    assert cgroups.find_containers(containers) != []
    own.kill_node("v6e-b-1")
    try:
        own.wait_for("Pod", "lost", namespace, until=lambda seen: "deletionTimestamp" in seen["metadata"])
        lost = own.get("Pod", "lost", namespace)
        [disrupted] = [each for each in lost["status"]["conditions"] if each["type"] == "DisruptionTarget"]
        assert (disrupted["status"], disrupted["reason"]) == ("True", "DeletionByTaintManager")
    finally:
        own.restart_node("v6e-b-1")
    assert own.get("Node", "v6e-b-1")["status"]["allocatable"][CHIP] == "4"
    assert cgroups.find_containers(containers) == []  # as after a real boot
    own.wait_for("Pod", "lost", namespace, gone=True)


def test_a_kind_is_unserved_until_every_way_in_which_a_controller_looks_for_it_leads_there(own: OwnCluster) -> None:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {"group": "example.dev", "scope": "Cluster", "names": names, "versions": [version]},
    }
    assert unserved(own.api, [definition]) == ["example.dev/v1/widgets"]
    own.create(definition)
    try:
        patience = Patience()
        while unserved(own.api, [definition]):
            assert patience.remaining_seconds
        assert own.api.request("GET", "/apis/example.dev/v1/widgets")["items"] == []
    finally:
        own.delete("CustomResourceDefinition", "widgets.example.dev")


def test_another_user_may_do_nothing_until_granted(own: OwnCluster) -> None:
    stranger = Api(own.kubeconfig_as("stranger"))
    with pytest.raises(ApiError) as refused:
        stranger.list("Pod", "default")
    assert refused.value.status == 403
    assert 'User "stranger" cannot list resource "pods"' in str(refused.value)


def test_nodes_carry_the_labels_and_the_taint_of_gke(own: OwnCluster) -> None:
    accelerators = {}
    for each in own.list("Node", labels=ACCELERATOR):
        assert each["spec"]["taints"] == [{"key": CHIP, "value": "present", "effect": "NoSchedule"}]
        assert each["metadata"]["labels"]["cloud.google.com/gke-accelerator-count"] == each["status"]["capacity"][CHIP]
        accelerators[each["metadata"]["name"]] = each["metadata"]["labels"][ACCELERATOR]
    assert set(accelerators.values()) == {"tpu-v6e-slice", "tpu-v5-lite-podslice"}


@pytest.fixture
def own(cluster: Cluster) -> OwnCluster:
    cluster.require("node-control")
    assert isinstance(cluster, OwnCluster)
    return cluster
