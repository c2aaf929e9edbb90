"""The ``spec.slice`` section: which TPU slices, and how many."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Self

from pydantic import Field, field_validator, model_validator

from tpuworker.spec.tpu import (
    Generation,
    Machine,
    SliceShape,
    find_generation,
    format_topology,
    nearest_generation,
    parse_topology,
)
from tpuworker.strict import PositiveInt, StrictModel, refusal


class SliceSpec(StrictModel):
    """The TPU slices of a job: all of one generation, topology and machine."""

    generation: str = Field(examples=["v6e", "tpu7x"])
    """TPU generation: v4, v5e, v5p, v6e, tpu7x, or an alias such as v5litepod, trillium, ironwood."""
    topology: str = Field(examples=["4x4", "2x2x4"])
    """Chips along each dimension, as the node label spells it. 2-D for v5e and v6e, 3-D for the others."""
    count: PositiveInt = 1
    """Number of slices. More than one is a multislice job, joined over the data-center network."""
    machine: str | None = None
    """Machine type. Needed only where the topology leaves a choice: 2x4 is one 8-chip host or two 4-chip hosts."""

    @field_validator("generation")
    @classmethod
    def _canonical_generation(cls, spelling: str) -> str:
        generation = find_generation(spelling)
        if generation is None:
            raise refusal(
                found=repr(spelling),
                wanted="a TPU generation",
                hint=f"write {nearest_generation(spelling)}",
            )
        return generation.name

    @model_validator(mode="after")
    def _is_in_the_table(self) -> Self:
        generation = find_generation(self.generation)
        assert generation is not None  # the field validator has refused it before
        topology = parse_topology(self.topology)
        if topology is None or not generation.machines_for(topology):
            raise refusal(
                field="topology",
                found=repr(self.topology),
                wanted=f"a {generation.name} topology ({generation.dimensions} dimensions)",
                hint=_nearest(generation, topology),
            )
        self._judge_machine(generation.machines_for(topology))
        return self

    def _judge_machine(self, machines: tuple[Machine, ...]) -> None:
        names = [machine.name for machine in machines]
        if self.machine is None and len(machines) > 1:
            choice = " or ".join(
                f"{m.name} ({self.chips_of(self.topology) // m.chips} x {m.chips} chips)" for m in machines
            )
            raise refusal(
                field="machine",
                found="no machine",
                wanted=f"the machine type, since {self.topology} can be formed in two ways",
                hint=f"write machine: {choice}",
            )
        if self.machine is not None and self.machine not in names:
            raise refusal(
                field="machine",
                found=repr(self.machine),
                wanted=f"a machine that forms {self.generation} {self.topology}",
                hint=f"write {' or '.join(names)}",
            )

    @staticmethod
    def chips_of(topology: str) -> int:
        """Return the chips of a topology's text."""
        return prod(parse_topology(topology) or (0,))

    @cached_property
    def shape(self) -> SliceShape:
        """The row of the table this section names: topology, machine, bounds, devices."""
        generation = find_generation(self.generation)
        topology = parse_topology(self.topology)
        assert generation is not None
        assert topology is not None
        machines = {machine.name: machine for machine in generation.machines_for(topology)}
        machine = machines[self.machine] if self.machine else next(iter(machines.values()))
        return SliceShape(generation, topology, machine)

    @property
    def hosts_per_slice(self) -> int:
        """Hosts of one slice: pods of one Job."""
        return self.shape.hosts

    @property
    def num_hosts(self) -> int:
        """Hosts of the whole job: slices x hosts per slice."""
        return self.count * self.shape.hosts

    @property
    def num_chips(self) -> int:
        """Chips of the whole job."""
        return self.count * self.shape.chips

    @property
    def devices_per_host(self) -> int:
        """Devices PJRT shows on one host."""
        return self.shape.devices_per_host

    @property
    def num_devices(self) -> int:
        """Devices of the whole job."""
        return self.num_hosts * self.shape.devices_per_host


def _nearest(generation: Generation, topology: tuple[int, ...] | None) -> str:
    nearest = generation.nearest_topologies(topology or (4,) * generation.dimensions)
    return "the nearest are " + ", ".join(format_topology(t) for t in nearest)
