"""The environment of a host is the one GKE gives: golden rows of the device plugin's own test, webhook, MEGASCALE."""

from __future__ import annotations

import pytest

from tests.builders import make_job
from tpuworker.spec.environment import device_plugin_environment, gke_environment, worker_environment
from tpuworker.spec.tpu import GENERATIONS, SliceShape, parse_topology

FFF, TTT = "false,false,false", "true,true,true"
FOUR_PORTS = "8431,8432,8433,8434"
EIGHT_PORTS = "8431,8432,8433,8434,8435,8436,8437,8438"

# label, topology, chips per node, type, host bounds, chips per host bounds, wrap, plugin numbers the host, ports
GOLDEN = [
    ("tpu-v4-podslice", "2x2x1", 4, "v4-8", "1,1,1", "2,2,1", FFF, True, FOUR_PORTS),
    ("tpu-v4-podslice", "2x2x2", 4, "v4-16", "1,1,2", "2,2,1", FFF, False, FOUR_PORTS),
    ("tpu-v4-podslice", "4x4x4", 4, "v4-128", "2,2,4", "2,2,1", TTT, False, FOUR_PORTS),
    ("tpu-v5-lite-podslice", "1x1", 1, "v5litepod-1", "1,1,1", "1,1,1", FFF, True, "8431"),
    ("tpu-v5-lite-podslice", "2x2", 4, "v5litepod-4", "1,1,1", "2,2,1", FFF, True, FOUR_PORTS),
    ("tpu-v5-lite-podslice", "2x4", 4, "v5litepod-8", "1,2,1", "2,2,1", FFF, False, FOUR_PORTS),
    ("tpu-v5-lite-podslice", "2x4", 8, "v5litepod-8", "1,1,1", "2,4,1", FFF, True, EIGHT_PORTS),
    ("tpu-v5-lite-podslice", "8x16", 4, "v5litepod-128", "4,8,1", "2,2,1", "false,true,false", False, FOUR_PORTS),
    ("tpu-v5p-slice", "2x2x4", 4, "v5p-32", "1,1,4", "2,2,1", FFF, False, FOUR_PORTS),
    ("tpu-v5p-slice", "2x4x4", 4, "v5p-64", "1,2,4", "2,2,1", FFF, False, FOUR_PORTS),
    ("tpu-v6e-slice", "4x4", 4, "v6e-16", "2,2,1", "2,2,1", FFF, False, FOUR_PORTS),
    ("tpu-v6e-slice", "16x16", 4, "v6e-256", "8,8,1", "2,2,1", "true,true,false", False, FOUR_PORTS),
    ("tpu7x", "1x1x1", 1, "tpu7x-2", "1,1,1", "1,1,1", FFF, False, "8431,8432"),
    ("tpu7x", "2x2x1", 4, "tpu7x-8", "1,1,1", "2,2,1", FFF, False, EIGHT_PORTS),
    ("tpu7x", "12x24x24", 4, "tpu7x-13824", "6,12,24", "2,2,1", TTT, False, EIGHT_PORTS),
]


def shape_of(label: str, topology: str, chips: int) -> SliceShape:
    generation = next(g for g in GENERATIONS if g.accelerator_label == label)
    edges = parse_topology(topology)
    assert edges is not None
    machine = next(m for m in generation.machines_for(edges) if m.chips == chips)
    return SliceShape(generation, edges, machine)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row[0]} {row[1]} on {row[2]}")
def test_device_plugin_environment_is_the_plugins_own(row: tuple[str, str, int, str, str, str, str, bool, str]) -> None:
    label, topology, chips, kind, host_bounds, chip_bounds, wrap, numbers_host, ports = row
    environment = device_plugin_environment(shape_of(label, topology, chips))
    wanted = {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": topology,
        "TPU_TOPOLOGY_ALT": "false",
        "ALT": "false",
        "TPU_ACCELERATOR_TYPE": kind,
        "TPU_HOST_BOUNDS": host_bounds,
        "HOST_BOUNDS": host_bounds,
        "TPU_CHIPS_PER_HOST_BOUNDS": chip_bounds,
        "CHIPS_PER_HOST_BOUNDS": chip_bounds,
        "TPU_TOPOLOGY_WRAP": wrap,
        "WRAP": wrap,
        "TPU_RUNTIME_METRICS_PORTS": ports,
        "VBAR_CONTROL_SERVICE_URL": "unix:///var/run/tpu-plugin/vbar.sock",
    }
    if numbers_host:
        wanted |= {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    if topology in ("4x4x4", "12x24x24"):
        wanted["ENABLE_ICI_RESILIENCY"] = "true"
    assert environment == wanted


def test_a_container_with_half_a_hosts_chips_is_told_its_own_bounds() -> None:
    environment = device_plugin_environment(shape_of("tpu7x", "2x2x1", 4), chips_per_container=2)
    assert environment["TPU_HOST_BOUNDS"] == "2,1,1"
    assert environment["TPU_CHIPS_PER_HOST_BOUNDS"] == "1,2,1"
    assert environment["TPU_RUNTIME_METRICS_PORTS"] == EIGHT_PORTS


def test_the_webhook_lists_the_hosts_of_the_own_slice_and_megascale_names_the_slice() -> None:
    job = make_job(slice={"topology": "2x4", "machine": "ct6e-standard-4t", "count": 2})
    environment = gke_environment(job, "tiny", slice_index=1, host_of_slice=1)
    told = {
        name: value
        for name, value in environment.items()
        if name.startswith(("MEGASCALE", "TPU_WORKER", "TPU_PROCESS", "JOB_"))
    }
    assert told == {
        "JOB_COMPLETION_INDEX": "1",
        "TPU_WORKER_ID": "1",
        "TPU_WORKER_HOSTNAMES": "tiny-slice-1-0.tiny,tiny-slice-1-1.tiny",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
        "MEGASCALE_COORDINATOR_ADDRESS": "tiny-slice-0-0.tiny",
    }


def test_one_slice_is_told_nothing_of_megascale() -> None:
    assert not [name for name in gke_environment(make_job(), "tiny", 0, 0) if name.startswith("MEGASCALE")]


def test_tpu7x_hosts_are_listed_with_ports_in_the_variable_of_its_row() -> None:
    job = make_job(slice={"generation": "tpu7x", "topology": "2x2x2"})
    environment = gke_environment(job, "tiny", 0, 1)
    assert environment["TPU_PROCESS_ADDRESSES"] == "tiny-slice-0-0.tiny:8471,tiny-slice-0-1.tiny:8471"
    assert environment["TPU_PROCESS_PORT"] == "8471"
    assert "TPU_WORKER_HOSTNAMES" not in environment


def test_the_launcher_adds_labels_of_jobset_and_the_coordinator() -> None:
    job = make_job()
    added = worker_environment(job, "tiny", 0, 3, namespace="ml", node_name="n3", restart_attempt=2).items() - (
        gke_environment(job, "tiny", 0, 3).items()
    )
    assert dict(added) == {
        "TPULAUNCH_SLICE_INDEX": "0",
        "TPULAUNCH_RESTART_ATTEMPT": "2",
        "TPULAUNCH_POD_NAME": "tiny-slice-0-3",
        "TPULAUNCH_POD_NAMESPACE": "ml",
        "TPULAUNCH_NODE_NAME": "n3",
        "TPULAUNCH_COORDINATOR": "tiny-slice-0-0.tiny",
    }
