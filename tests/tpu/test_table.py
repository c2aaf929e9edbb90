"""The table of TPUs against literal facts: GKE's device plugin, xpk's topologies, GKE's machine types."""

from __future__ import annotations

from itertools import permutations
from math import prod

import pytest

from tpuworker.spec.tpu import (
    GENERATIONS,
    REFUSED_LABELS,
    Generation,
    SliceShape,
    find_generation,
    format_topology,
    nearest_generation,
    parse_topology,
)

each_generation = pytest.mark.parametrize("generation", GENERATIONS, ids=lambda g: g.name)


def generation(name: str) -> Generation:
    found = find_generation(name)
    assert found is not None
    return found


def shape(name: str, topology: str, chips_per_host: int) -> SliceShape:
    (found,) = [
        s
        for s in generation(name).shapes()
        if format_topology(s.topology) == topology and s.machine.chips == chips_per_host
    ]
    return found


@pytest.mark.parametrize(("name", "number"), [("v4", 186), ("v5p", 414), ("tpu7x", 432 + 1), ("v5e", 8), ("v6e", 8)])
def test_a_generation_has_as_many_topologies_as_can_be_bought(name: str, number: int) -> None:
    assert len(generation(name).topologies) == number


@each_generation
def test_every_slice_is_whole_hosts(generation: Generation) -> None:
    for s in generation.shapes():
        assert s.chips == prod(s.topology) == s.hosts * s.machine.chips
        assert prod(s.host_bounds) == s.hosts
        assert prod(s.machine.chip_bounds) == s.machine.chips


@each_generation
def test_edges_ascend_and_no_topology_comes_twice(generation: Generation) -> None:
    assert len(set(generation.topologies)) == len(generation.topologies)
    whole = [t for t in generation.topologies if t != (2, 2, 1)]
    assert all(list(t) == sorted(t) for t in whole)


#: (label, topology, chips per node) -> type, host bounds, wrap, worker id by the plugin, ICI resiliency: the device
#: plugin's own table test (pkg/tpu/util/util_test.go).
PLUGIN = [
    ("tpu-v4-podslice", "2x2x1", 4, "v4-8", (1, 1, 1), "fff", True, False),
    ("tpu-v4-podslice", "2x2x2", 4, "v4-16", (1, 1, 2), "fff", False, False),
    ("tpu-v4-podslice", "4x4x4", 4, "v4-128", (2, 2, 4), "ttt", False, True),
    ("tpu-v5-lite-podslice", "1x1", 1, "v5litepod-1", (1, 1, 1), "fff", True, False),
    ("tpu-v5-lite-podslice", "2x4", 4, "v5litepod-8", (1, 2, 1), "fff", False, False),
    ("tpu-v5-lite-podslice", "2x4", 8, "v5litepod-8", (1, 1, 1), "fff", True, False),
    ("tpu-v5-lite-podslice", "8x16", 4, "v5litepod-128", (4, 8, 1), "ftf", False, False),
    ("tpu-v5p-slice", "2x2x4", 4, "v5p-32", (1, 1, 4), "fff", False, False),
    ("tpu-v5p-slice", "2x4x4", 4, "v5p-64", (1, 2, 4), "fff", False, False),
    ("tpu-v6e-slice", "4x4", 4, "v6e-16", (2, 2, 1), "fff", False, False),
    ("tpu-v6e-slice", "16x16", 4, "v6e-256", (8, 8, 1), "ttf", False, False),
    ("tpu7x", "1x1x1", 1, "tpu7x-2", (1, 1, 1), "fff", False, False),
    ("tpu7x", "2x2x1", 4, "tpu7x-8", (1, 1, 1), "fff", False, False),
    ("tpu7x", "12x24x24", 4, "tpu7x-13824", (6, 12, 24), "ttt", False, True),
]


@pytest.mark.parametrize("row", PLUGIN, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_bounds_and_types_are_the_device_plugins(
    row: tuple[str, str, int, str, tuple[int, int, int], str, bool, bool],
) -> None:
    label, topology, chips, accelerator_type, bounds, wrap, sets_worker_id, resiliency = row
    (name,) = [g.name for g in GENERATIONS if g.accelerator_label == label]
    s = shape(name, topology, chips)
    assert s.accelerator_type == accelerator_type
    assert s.host_bounds == bounds
    assert s.wrap == tuple(letter == "t" for letter in wrap)
    assert s.plugin_sets_worker_id == sets_worker_id
    assert s.has_ici_resiliency == resiliency


#: machine, chips, vCPU, RAM GiB, allocatable GiB, plan GiB (GKE's autoscaler; the plan is 0.8 of the RAM).
MACHINES = [
    ("ct4p-hightpu-4t", 4, 240, 407, 392, 325),
    ("ct5lp-hightpu-1t", 1, 24, 48, 43, 38),
    ("ct5lp-hightpu-4t", 4, 112, 192, 181, 153),
    ("ct5lp-hightpu-8t", 8, 224, 384, 370, 307),
    ("ct5p-hightpu-4t", 4, 208, 448, 432, 358),
    ("ct6e-standard-1t", 1, 44, 176, 166, 140),
    ("ct6e-standard-4t", 4, 180, 720, 699, 576),
    ("ct6e-standard-8t", 8, 180, 1440, 1405, 1152),
    ("tpu7x-standard-1t", 1, 56, 240, 229, 192),
    ("tpu7x-standard-4t", 4, 224, 960, 934, 768),
]


def test_machines_are_gkes() -> None:
    machines = [m for g in GENERATIONS for m in g.machines]
    assert [(m.name, m.chips, m.vcpus, m.ram_gib, m.allocatable_gib, m.plan_gib) for m in machines] == MACHINES


@each_generation
def test_a_plan_leaves_room_below_what_can_be_allocated(generation: Generation) -> None:
    assert all(m.plan_gib < m.allocatable_gib < m.ram_gib for m in generation.machines)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("v5e", "v5e"),
        ("v5litepod", "v5e"),
        ("tpu-v5-lite-podslice", "v5e"),
        ("trillium", "v6e"),
        ("Trillium", "v6e"),
        ("tpu7x", "tpu7x"),
        ("v7x", "tpu7x"),
        ("ironwood", "tpu7x"),
        (" V5P ", "v5p"),
    ],
)
def test_aliases_mean_one_canonical_name(spelling: str, name: str) -> None:
    assert generation(spelling).name == name


def test_no_spelling_means_two_generations() -> None:
    spellings = [spelling for g in GENERATIONS for spelling in {g.name, *g.aliases}]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("label", sorted(REFUSED_LABELS))
def test_a_label_that_is_no_choice_is_refused_with_one_that_is(label: str) -> None:
    assert find_generation(label) is None
    assert nearest_generation(label) == REFUSED_LABELS[label]


@pytest.mark.parametrize(
    ("sized", "hint"),
    [
        ("v5e-16", "generation: v5e with the topology written out, for example topology: 4x4 (16 chips)"),
        ("v5litepod-16", "generation: v5e with the topology written out, for example topology: 4x4 (16 chips)"),
        ("v5p-16", "generation: v5p with the topology written out, for example topology: 2x2x2 (8 chips)"),
        ("v4-8", "generation: v4 with the topology written out, for example topology: 2x2x1 (4 chips)"),
        ("v6", "v6e"),
        ("gpu-h100", "one of v4, v5e, v5p, v6e, tpu7x"),
    ],
)
def test_a_sized_name_is_taken_apart_and_never_answered_with_another_generation(sized: str, hint: str) -> None:
    assert nearest_generation(sized) == hint


@pytest.mark.parametrize(
    ("name", "wanted", "nearest"),
    [
        ("v6e", (4, 3), ["2x4", "4x4", "2x2"]),
        ("v6e", (8, 4), ["4x8", "4x4", "2x4"]),
        ("v4", (2, 2), ["2x2x1", "2x2x2", "2x2x4"]),
        ("v5p", (4, 8, 4), ["4x4x8", "4x4x4", "4x4x12"]),
    ],
)
def test_the_nearest_topologies_keep_the_edges_or_the_chips(
    name: str, wanted: tuple[int, ...], nearest: list[str]
) -> None:
    assert [format_topology(t) for t in generation(name).nearest_topologies(wanted)] == nearest


@pytest.mark.parametrize("text", ["", "4", "4x", "x4", "4x4x4x4", "4*4", "-4x4", "4x4 ", "fourxfour"])
def test_what_is_no_topology_is_not_read_as_one(text: str) -> None:
    assert parse_topology(text) is None


@each_generation
def test_a_topology_is_read_back_as_it_is_written(generation: Generation) -> None:
    for topology in generation.topologies:
        assert parse_topology(format_topology(topology)) == topology


def test_only_the_canonical_order_of_edges_is_a_topology() -> None:
    v5p = generation("v5p")
    accepted = [t for t in set(permutations((4, 8, 12))) if v5p.machines_for(t)]
    assert accepted == [(4, 8, 12)]


def test_one_size_alone_leaves_a_choice_of_machine() -> None:
    ambiguous = {format_topology(t) for g in GENERATIONS for t in g.topologies if len(g.machines_for(t)) > 1}
    assert ambiguous == {"2x4"}
