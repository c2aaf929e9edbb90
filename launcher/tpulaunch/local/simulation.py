"""Which slices are simulated: the spec's own, or the nearest of the same generation with another number of hosts."""

from __future__ import annotations

import json
from dataclasses import replace

from tpulaunch.errors import InputError
from tpuworker.errors import SpecError
from tpuworker.spec import TPUJob, load_job
from tpuworker.spec.tpu import SliceShape, find_generation, format_topology

#: More processes than this on one machine were asked for by name, or by mistake.
MOST_HOSTS = 16


def simulated(job: TPUJob, num_hosts: int | None) -> TPUJob:
    """Return the job on as many hosts: unchanged, or with another slice of the same generation.

    Kept as far as possible: the machine, and so the devices of a host; then the number of slices; then few slices.

    Args:
        job: The job.
        num_hosts: Hosts to simulate; None for the spec's own.

    Raises:
        InputError: More hosts than a machine should run, without having been asked for.
        SpecError: The batch does not divide over these hosts and their devices.
    """
    spec = job.spec.slice
    if num_hosts is None and job.num_hosts > MOST_HOSTS:
        raise InputError(
            f"the spec has {job.num_hosts} hosts ({spec.count} x {spec.generation} {spec.topology}); on one machine "
            "say how many are simulated, for instance --hosts 2"
        )
    if num_hosts is None or num_hosts == job.num_hosts:
        return job
    if num_hosts < 1:
        raise InputError(f"--hosts {num_hosts}: at least 1 is wanted")
    count, shape = _nearest(job, num_hosts)
    document = json.loads(job.model_dump_json(by_alias=True, exclude_unset=True))
    document["spec"]["slice"] = {
        "generation": shape.generation.name,
        "topology": format_topology(shape.topology),
        "machine": shape.machine.name,
        "count": count,
    }
    try:
        return load_job(json.dumps(document))
    except SpecError as error:
        # Lines would be those of a document that nobody wrote.
        raise SpecError([replace(fault, line=None) for fault in error.faults], f"--hosts {num_hosts}") from None


def describe(job: TPUJob) -> str:
    """Return in words which slices a job has."""
    spec = job.spec.slice
    slices = "1 slice" if spec.count == 1 else f"{spec.count} slices"
    return (
        f"{slices} of {spec.generation} {spec.topology} on {spec.shape.machine.name}: {job.num_hosts} hosts with "
        f"{spec.devices_per_host} devices each"
    )


def _nearest(job: TPUJob, num_hosts: int) -> tuple[int, SliceShape]:
    spec = job.spec.slice
    generation = find_generation(spec.generation)
    assert generation is not None  # the spec has been validated
    fitting = [
        (num_hosts // shape.hosts, shape)
        for shape in generation.shapes()
        if shape.hosts <= num_hosts and num_hosts % shape.hosts == 0
    ]
    return min(
        fitting,
        key=lambda option: (
            option[1].machine != spec.shape.machine,
            option[0] != spec.count,
            option[0],
            max(option[1].topology),
        ),
    )
