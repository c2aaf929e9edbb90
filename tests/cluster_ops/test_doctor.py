"""Slices on offer are counted whole, and named as a spec would name them."""

from __future__ import annotations

from typing import Any

from tests.cluster_ops.builders import condition
from tpulaunch.cluster.doctor import offers
from tpulaunch.cluster.objects import Object


def node(
    name: str, accelerator: str, topology: str, chips: int, pool: str, *, ready: bool = True, **labels: Any
) -> Object:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "cloud.google.com/gke-tpu-accelerator": accelerator,
                "cloud.google.com/gke-tpu-topology": topology,
                "cloud.google.com/gke-nodepool": pool,
                **labels,
            },
        },
        "status": {"allocatable": {"google.com/tpu": str(chips)}, "conditions": [condition("Ready", str(ready))]},
    }


def test_a_slice_of_several_hosts_is_whole_only_when_one_pool_has_all_of_them_ready() -> None:
    nodes = [node(f"a-{i}", "tpu-v6e-slice", "4x4", 4, "a") for i in range(4)]
    nodes += [node(f"b-{i}", "tpu-v6e-slice", "4x4", 4, "b", ready=i > 0) for i in range(4)]
    (offer,) = offers(nodes)
    assert (offer.generation, offer.topology, offer.num_slices, offer.num_nodes) == ("v6e", "4x4", 1, 8)


def test_single_hosts_count_one_by_one_and_capacities_stand_apart() -> None:
    nodes = [node(f"a-{i}", "tpu-v5-lite-podslice", "2x2", 4, "a") for i in range(3)]
    nodes.append(node("s", "tpu-v5-lite-podslice", "2x2", 4, "s", **{"cloud.google.com/gke-spot": "true"}))
    assert [(o.capacity, o.num_slices) for o in offers(nodes)] == [("on-demand", 3), ("spot", 1)]


def test_the_machine_decides_between_one_host_and_two_of_the_same_topology() -> None:
    two = [node(f"a-{i}", "tpu-v6e-slice", "2x4", 4, "a") for i in range(2)]
    one = [node("b-0", "tpu-v6e-slice", "2x4", 8, "b")]
    assert sorted((o.chips_per_host, o.num_slices) for o in offers(two + one)) == [(4, 1), (8, 1)]


def test_an_unknown_accelerator_is_shown_by_its_label() -> None:
    (offer,) = offers([node("x", "tpu-v99", "2x2", 4, "x")])
    assert (offer.generation, offer.num_slices) == ("tpu-v99", 1)
