"""The table of TPUs: one row per generation, holding everything that differs between generations.

Nothing else in the code knows a generation's name. Sources: xpk ``system_characteristics.py`` for the topologies,
GKE's own autoscaler (``machinetypes/``) for machines, vCPUs and RAM, the GKE device plugin for labels, bounds and
type names. RAM figures are GiB although web pages print GB; where two sources differ the lower figure is kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import prod
from types import MappingProxyType

#: Chips of one 3-D building block (a 4x4x4 cube).
_CUBE_EDGE = 4
_LARGEST_EDGE = 256

Topology = tuple[int, ...]


def format_topology(topology: Topology) -> str:
    """Return ``(4, 4)`` as ``4x4``, the form of the node label."""
    return "x".join(str(edge) for edge in topology)


def parse_topology(text: str) -> Topology | None:
    """Return ``4x4`` as ``(4, 4)``, or None for a text that is no topology at all."""
    edges = text.lower().split("x")
    return tuple(map(int, edges)) if len(edges) in (2, 3) and all(edge.isdecimal() for edge in edges) else None


@dataclass(frozen=True)
class Machine:
    """A machine type that carries chips.

    Attributes:
        name: Compute Engine machine type.
        chips: Value of ``google.com/tpu`` on its node.
        vcpus: Virtual CPUs.
        ram_gib: Physical memory in GiB.
        allocatable_gib: The most that pods can request after GKE's reservation, in GiB.
        chip_bounds: Chips of one host along x, y, z.
    """

    name: str
    chips: int
    vcpus: int
    ram_gib: int
    allocatable_gib: int
    chip_bounds: tuple[int, int, int]

    @property
    def plan_gib(self) -> int:
        """Memory in GiB a job may plan with: 0.8 of the RAM, which fits even if the figure were decimal GB."""
        return self.ram_gib * 8 // 10


@dataclass(frozen=True)
class SliceShape:
    """One slice as it can be bought: a topology on a machine type.

    Attributes:
        generation: Canonical name of the generation.
        topology: Chips along each dimension.
        machine: The machine type each host is.
    """

    generation: Generation
    topology: Topology
    machine: Machine

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return prod(self.topology)

    @property
    def hosts(self) -> int:
        """Virtual machines of one slice: nodes of the pool, and pods of the Job."""
        return self.chips // self.machine.chips

    @property
    def devices_per_host(self) -> int:
        """Devices that PJRT shows to one process on one host."""
        return self.machine.chips * self.generation.devices_per_chip

    @property
    def accelerator_type(self) -> str:
        """Value of ``TPU_ACCELERATOR_TYPE``: the generation and its TensorCores, ``v6e-16``, ``v5p-8``."""
        return f"{self.generation.type_prefix}-{self.chips * self.generation.cores_per_chip}"

    @property
    def host_bounds(self) -> tuple[int, int, int]:
        """Hosts along x, y, z (``TPU_HOST_BOUNDS``)."""
        x, y, z = self._three_edges
        chip_x, chip_y, chip_z = self.machine.chip_bounds
        return (x // chip_x, y // chip_y, z // chip_z)

    @property
    def wrap(self) -> tuple[bool, bool, bool]:
        """Whether the torus closes along x, y, z (``TPU_TOPOLOGY_WRAP``)."""
        x, y, z = self._three_edges
        if self.generation.dimensions == 3:  # whole cubes close in every direction, parts of a cube in none
            closed = all(edge % _CUBE_EDGE == 0 for edge in (x, y, z))
            return (closed, closed, closed)
        return (x == self.generation.wrap_edge, y == self.generation.wrap_edge, False)

    @property
    def is_multi_host(self) -> bool:
        """Whether a slice spans several hosts, and thus one whole node pool."""
        return self.hosts > 1

    @property
    def has_ici_resiliency(self) -> bool:
        """Whether the device plugin turns on ``ENABLE_ICI_RESILIENCY``: whole cubes only."""
        return self.generation.dimensions == 3 and all(edge % _CUBE_EDGE == 0 for edge in self.topology)

    @property
    def plugin_sets_worker_id(self) -> bool:
        """Whether the device plugin itself sets ``TPU_WORKER_ID=0`` and ``TPU_WORKER_HOSTNAMES=localhost``."""
        return not self.is_multi_host and self.generation.plugin_sets_single_host_id

    @property
    def _three_edges(self) -> tuple[int, int, int]:
        x, y, z = (*self.topology, 1)[:3]
        return (x, y, z)


@dataclass(frozen=True)
class Generation:
    """One row of the table.

    Attributes:
        name: Canonical name, as the spec spells it after validation.
        common_name: How people call it.
        aliases: Other spellings that are accepted.
        accelerator_label: Value of the node label ``cloud.google.com/gke-tpu-accelerator``.
        type_prefix: First part of ``TPU_ACCELERATOR_TYPE``.
        dimensions: Dimensions of the torus.
        cores_per_chip: TensorCores of a chip; names of v4, v5p and tpu7x sizes count these.
        devices_per_chip: Devices that PJRT shows for a chip.
        hbm_gib: High-bandwidth memory of a chip in GiB.
        machines: Machine types, by ascending chips.
        small: Topologies below one cube (3-D), or all of them (2-D), each with the machines that can form it.
        max_cubes: Most 4x4x4 cubes in a slice; 0 for 2-D.
        wrap_edge: Edge length at which a 2-D torus closes; 0 for 3-D.
        plugin_sets_single_host_id: See :attr:`SliceShape.plugin_sets_worker_id`.
        addresses_variable: Variable in which GKE's webhook lists the hosts of a slice.
        webhook_is_documented: Whether it is documented that the webhook numbers the hosts of an Indexed Job, so that a
            missing number is a fault. For TPU7x only KubeRay's webhook is public.
        has_workload_scheduler: Whether flex-start and queued capacity (Dynamic Workload Scheduler) exist for it.
    """

    name: str
    common_name: str
    aliases: tuple[str, ...]
    accelerator_label: str
    type_prefix: str
    dimensions: int
    cores_per_chip: int
    devices_per_chip: int
    hbm_gib: int
    machines: tuple[Machine, ...]
    small: tuple[tuple[Topology, tuple[int, ...]], ...]
    max_cubes: int = 0
    wrap_edge: int = 0
    plugin_sets_single_host_id: bool = True
    addresses_variable: str = "TPU_WORKER_HOSTNAMES"
    webhook_is_documented: bool = True
    has_workload_scheduler: bool = True

    @cached_property
    def topologies(self) -> tuple[Topology, ...]:
        """Every topology that can be bought, by ascending chips, edges ascending."""
        whole_cubes = list(self._whole_cubes()) if self.max_cubes else []
        return tuple(sorted([*(t for t, _ in self.small), *whole_cubes], key=lambda t: (prod(t), t)))

    def _whole_cubes(self) -> Iterator[Topology]:
        edges = range(_CUBE_EDGE, _LARGEST_EDGE + 1, _CUBE_EDGE)
        for topology in combinations_with_replacement(edges, 3):
            if prod(topology) <= self.max_cubes * _CUBE_EDGE**3:
                yield topology

    def machines_for(self, topology: Topology) -> tuple[Machine, ...]:
        """Return the machine types that can form a valid topology; empty if it is none of this generation's."""
        for small, chips_of_machines in self.small:
            if small == topology:
                return tuple(m for m in self.machines if m.chips in chips_of_machines)
        if topology in self.topologies:
            return (max(self.machines, key=lambda machine: machine.chips),)
        return ()

    def nearest_topologies(self, wanted: Topology, count: int = 3) -> tuple[Topology, ...]:
        """Return the valid topologies closest in chips to an invalid one, the same edges in order first."""
        ordered = tuple(sorted(wanted))
        chips = prod(wanted)
        ranked = sorted(self.topologies, key=lambda t: (t != ordered, abs(prod(t) - chips), t))
        return tuple(ranked[:count])

    def shapes(self) -> Iterator[SliceShape]:
        """Yield every topology on every machine that can form it."""
        for topology in self.topologies:
            for machine in self.machines_for(topology):
                yield SliceShape(self, topology, machine)


_FLAT_TOPOLOGIES: tuple[tuple[Topology, tuple[int, ...]], ...] = (
    ((1, 1), (1,)),
    ((2, 2), (4,)),
    ((2, 4), (4, 8)),  # the one ambiguous size: two 4-chip hosts or one 8-chip host
    ((4, 4), (4,)),
    ((4, 8), (4,)),
    ((8, 8), (4,)),
    ((8, 16), (4,)),
    ((16, 16), (4,)),
)
_PARTS_OF_A_CUBE: tuple[tuple[Topology, tuple[int, ...]], ...] = (
    ((2, 2, 1), (4,)),
    ((2, 2, 2), (4,)),
    ((2, 2, 4), (4,)),
    ((2, 4, 4), (4,)),
)
_ONE: tuple[int, int, int] = (1, 1, 1)
_FOUR: tuple[int, int, int] = (2, 2, 1)
_EIGHT: tuple[int, int, int] = (2, 4, 1)

GENERATIONS: tuple[Generation, ...] = (
    Generation(
        name="v4",
        common_name="TPU v4",
        aliases=("tpu-v4", "tpu-v4-podslice"),
        accelerator_label="tpu-v4-podslice",
        type_prefix="v4",
        dimensions=3,
        cores_per_chip=2,
        devices_per_chip=1,
        hbm_gib=32,
        machines=(Machine("ct4p-hightpu-4t", 4, 240, 407, 392, _FOUR),),
        small=_PARTS_OF_A_CUBE,
        max_cubes=64,
        has_workload_scheduler=False,
    ),
    Generation(
        name="v5e",
        common_name="TPU v5e",
        aliases=("v5litepod", "v5-lite", "v5lite", "tpu-v5e", "tpu-v5-lite-podslice"),
        accelerator_label="tpu-v5-lite-podslice",
        type_prefix="v5litepod",
        dimensions=2,
        cores_per_chip=1,
        devices_per_chip=1,
        hbm_gib=16,
        machines=(
            Machine("ct5lp-hightpu-1t", 1, 24, 48, 43, _ONE),
            Machine("ct5lp-hightpu-4t", 4, 112, 192, 181, _FOUR),
            Machine("ct5lp-hightpu-8t", 8, 224, 384, 370, _EIGHT),
        ),
        small=_FLAT_TOPOLOGIES,
        wrap_edge=16,
    ),
    Generation(
        name="v5p",
        common_name="TPU v5p",
        aliases=("tpu-v5p", "tpu-v5p-slice"),
        accelerator_label="tpu-v5p-slice",
        type_prefix="v5p",
        dimensions=3,
        cores_per_chip=2,
        devices_per_chip=1,
        hbm_gib=95,
        machines=(Machine("ct5p-hightpu-4t", 4, 208, 448, 432, _FOUR),),
        small=_PARTS_OF_A_CUBE,
        max_cubes=140,  # xpk and cluster-toolkit; a KubeRay validator stops at 96
    ),
    Generation(
        name="v6e",
        common_name="TPU v6e (Trillium)",
        aliases=("trillium", "tpu-v6e", "tpu-v6e-slice"),
        accelerator_label="tpu-v6e-slice",
        type_prefix="v6e",
        dimensions=2,
        cores_per_chip=1,
        devices_per_chip=1,
        hbm_gib=32,
        machines=(
            Machine("ct6e-standard-1t", 1, 44, 176, 166, _ONE),
            Machine("ct6e-standard-4t", 4, 180, 720, 699, _FOUR),
            Machine("ct6e-standard-8t", 8, 180, 1440, 1405, _EIGHT),
        ),
        small=_FLAT_TOPOLOGIES,
        wrap_edge=16,
    ),
    Generation(
        name="tpu7x",
        common_name="TPU7x (Ironwood)",
        aliases=("v7x", "7x", "tpu-7x", "ironwood"),
        accelerator_label="tpu7x",
        type_prefix="tpu7x",
        dimensions=3,
        cores_per_chip=2,
        devices_per_chip=2,
        hbm_gib=192,
        machines=(
            Machine("tpu7x-standard-1t", 1, 56, 240, 229, _ONE),
            Machine("tpu7x-standard-4t", 4, 224, 960, 934, _FOUR),
        ),
        small=(((1, 1, 1), (1,)), *_PARTS_OF_A_CUBE),
        max_cubes=144,
        plugin_sets_single_host_id=False,
        addresses_variable="TPU_PROCESS_ADDRESSES",
        webhook_is_documented=False,
    ),
)

#: What a first spec asks for: a generation with public machines that both backends run on, and its smallest slice of
#: several hosts that needs no choice of machine.
STARTER_GENERATION, STARTER_TOPOLOGY = "v6e", "4x4"

#: Labels that look like a choice and are none, each with what to write instead.
REFUSED_LABELS = MappingProxyType(
    {
        "tpu-v5-lite-device": "v5e",
        "tpu-v5e-slice": "v5e",
        "v5": "v5e or v5p",
        "tpu-v5": "v5e or v5p",
        "v3": "v4 or later: multislice and the current device plugin leave v3 out",
        "tpu-v3-device": "v4 or later",
        "tpu-v3-slice": "v4 or later",
        "tpu-v4-lite-device": "v4",
        "tpu7": "tpu7x",
    }
)

_BY_SPELLING = {spelling: g for g in GENERATIONS for spelling in (g.name, *g.aliases)}


def find_generation(spelling: str) -> Generation | None:
    """Return the generation a name or alias means, upper or lower case, or None."""
    return _BY_SPELLING.get(spelling.strip().lower())


def nearest_generation(spelling: str) -> str:
    """Return what to write instead of an unknown generation: a canonical name, or the list of all."""
    lowered = spelling.strip().lower()
    if lowered in REFUSED_LABELS:
        return REFUSED_LABELS[lowered]
    stem = lowered.rsplit("-", 1)[0] if lowered.rsplit("-", 1)[-1].isdecimal() else lowered
    if stem != lowered and (generation := find_generation(stem)):
        return (
            f"generation: {generation.name} with the topology written out, for example {_example(lowered, generation)}"
        )
    close = difflib.get_close_matches(lowered, list(_BY_SPELLING), n=1, cutoff=0.5)
    return _BY_SPELLING[close[0]].name if close else "one of " + ", ".join(g.name for g in GENERATIONS)


def _example(sized_name: str, generation: Generation) -> str:
    """Return the topology that a sized name such as ``v5p-16`` most likely means: it counts TensorCores."""
    chips = int(sized_name.rsplit("-", 1)[-1]) // generation.cores_per_chip
    exact = [t for t in generation.topologies if prod(t) == chips]
    best = exact or generation.nearest_topologies((chips,), count=1)
    return f"topology: {format_topology(best[-1])} ({prod(best[-1])} chips)"
