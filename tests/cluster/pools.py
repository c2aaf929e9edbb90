"""Node pools as GKE makes them: labels, taint and chips of each TPU shape the tests use."""

from __future__ import annotations

from dataclasses import dataclass, field

ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
COUNT = "cloud.google.com/gke-accelerator-count"
NODE_POOL = "cloud.google.com/gke-nodepool"
CHIP = "google.com/tpu"
FAKE = "tpulaunch.dev/fake-node"


@dataclass(frozen=True)
class Pool:
    """`hosts` equal nodes named `<name>-0`, `<name>-1`, ...; a pool without `accelerator` is one of plain CPU nodes.

    `labels` come on top of GKE's (`cloud.google.com/gke-spot: "true"`, ...). `real` nodes run pods; others only take
    them.
    """

    name: str
    accelerator: str = ""
    topology: str = ""
    chips: int = 0
    machine: str = ""
    hosts: int = 1
    real: bool = True
    labels: dict[str, str] = field(default_factory=dict)

    def node_names(self) -> list[str]:
        """Names of the pool's nodes, in order."""
        return [f"{self.name}-{index}" for index in range(self.hosts)]

    def node_labels(self) -> dict[str, str]:
        """What GKE puts on each node of such a pool."""
        labels = {NODE_POOL: self.name}
        if self.machine:
            labels["node.kubernetes.io/instance-type"] = self.machine
        if self.accelerator:
            labels |= {ACCELERATOR: self.accelerator, TOPOLOGY: self.topology, COUNT: str(self.chips)}
        return labels | self.labels

    def node_taints(self) -> list[dict[str, str]]:
        """GKE taints TPU nodes, so that nothing else lands on them."""
        return [{"key": CHIP, "value": "present", "effect": "NoSchedule"}] if self.accelerator else []


def v6e(name: str, topology: str = "2x4", chips: int = 4, hosts: int = 2, *, real: bool = True) -> Pool:
    """A Trillium pool; `2x4` on 4-chip machines is two hosts."""
    return Pool(name, "tpu-v6e-slice", topology, chips, f"ct6e-standard-{chips}t", hosts, real)


def v5e(name: str, topology: str = "2x2", chips: int = 4, hosts: int = 1, *, real: bool = True) -> Pool:
    """A v5e pool; `2x2` is one 4-chip host."""
    return Pool(name, "tpu-v5-lite-podslice", topology, chips, f"ct5lp-hightpu-{chips}t", hosts, real)


# Two slices of two hosts each, and a single-host slice of another generation.
DEFAULT_POOLS = (v6e("v6e-a"), v6e("v6e-b"), v5e("v5e"))
