"""``tpulaunch tpus``: the table of generations and topologies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.output import Format, emit, emit_json, emit_table
from tpulaunch.errors import InputError

if TYPE_CHECKING:
    from tpuworker.spec.tpu import Generation, SliceShape


def tpus(
    generation: Annotated[
        str | None, typer.Argument(help="Only this generation, or an alias of it.", show_default=False)
    ] = None,
    chips: Annotated[int | None, typer.Option(help="Only slices of so many chips.", min=1, show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every topology of every generation.")] = False,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="table, json or name.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
) -> None:
    """Print the table of TPU generations and topologies.

    Without arguments: one line for each generation. With a generation, a number of chips, or --all: every slice that
    can be bought, with its hosts.
    """
    if output not in (Format.TABLE, Format.WIDE, Format.JSON, Format.NAME):
        raise InputError(f"-o {output.value} is not for tpus; use table, json or name")
    from tpuworker.spec.tpu import GENERATIONS

    chosen = GENERATIONS if generation is None else (_find(generation),)
    if generation is None and chips is None and not everything:
        _print_generations(chosen, output)
        return
    shapes = [shape for g in chosen for shape in g.shapes() if chips in (None, shape.chips)]
    if not shapes:
        raise InputError(f"no slice has {chips} chips; the nearest have {_nearest(chosen, chips or 0)}")
    _print_shapes(shapes, output)


def _find(spelling: str) -> Generation:
    from tpuworker.spec.tpu import find_generation, nearest_generation

    found = find_generation(spelling)
    if found is None:
        raise InputError(f"{spelling}: no TPU generation; write {nearest_generation(spelling)}")
    return found


def _nearest(generations: Iterable[Generation], chips: int) -> str:
    sizes = {shape.chips for g in generations for shape in g.shapes()}
    return ", ".join(str(size) for size in sorted(sorted(sizes, key=lambda size: abs(size - chips))[:3]))


def _print_generations(generations: Iterable[Generation], output: Format) -> None:
    if output is Format.NAME:
        emit("\n".join(g.name for g in generations))
    elif output is Format.JSON:
        emit_json([_generation_values(g) for g in generations])
    else:
        header = ("GENERATION", "ALIASES", "NODE LABEL", "CHIPS", "HBM/CHIP", "DEVICES/CHIP", "TOPOLOGIES", "MACHINES")
        emit_table(header, (_generation_row(g) for g in generations))


def _generation_row(generation: Generation) -> tuple[object, ...]:
    from tpuworker.spec.tpu import format_topology

    topologies = generation.topologies
    shapes = list(generation.shapes())
    return (
        generation.name,
        ",".join(generation.aliases[:2]),
        generation.accelerator_label,
        f"{shapes[0].chips}-{max(shape.chips for shape in shapes)}",
        f"{generation.hbm_gib}Gi",
        generation.devices_per_chip,
        f"{len(topologies)}: {format_topology(topologies[0])}..{format_topology(topologies[-1])}",
        ",".join(machine.name for machine in generation.machines),
    )


def _generation_values(generation: Generation) -> dict[str, Any]:
    return {
        "name": generation.name,
        "aliases": list(generation.aliases),
        "acceleratorLabel": generation.accelerator_label,
        "hbmGiBPerChip": generation.hbm_gib,
        "devicesPerChip": generation.devices_per_chip,
        "machines": [
            {
                "name": machine.name,
                "chips": machine.chips,
                "vcpus": machine.vcpus,
                "ramGiB": machine.ram_gib,
                "allocatableGiB": machine.allocatable_gib,
                "planGiB": machine.plan_gib,
            }
            for machine in generation.machines
        ],
        "slices": [_shape_values(shape) for shape in generation.shapes()],
    }


def _print_shapes(shapes: Iterable[SliceShape], output: Format) -> None:
    values = [_shape_values(shape) for shape in shapes]
    if output is Format.NAME:
        emit("\n".join(f"{value['generation']}/{value['topology']}/{value['machine']}" for value in values))
    elif output is Format.JSON:
        emit_json(values)
    else:
        header = ("GENERATION", "TOPOLOGY", "CHIPS", "HOSTS", "MACHINE", "CHIPS/HOST", "DEVICES", "RAM/HOST", "TYPE")
        emit_table(header, (tuple(value.values()) for value in values))


def _shape_values(shape: SliceShape) -> dict[str, Any]:
    from tpuworker.spec.tpu import format_topology

    return {
        "generation": shape.generation.name,
        "topology": format_topology(shape.topology),
        "chips": shape.chips,
        "hosts": shape.hosts,
        "machine": shape.machine.name,
        "chipsPerHost": shape.machine.chips,
        "devices": shape.hosts * shape.devices_per_host,
        "ram": f"{shape.machine.ram_gib}Gi",
        "acceleratorType": shape.accelerator_type,
    }
