"""``tpulaunch validate``: every check that needs neither cluster nor data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.output import Format, emit, emit_json, remark
from tpulaunch.cli.source import FileFlag, Files, Namespace, Source, chosen, login_name, proved_manifest, read_source
from tpulaunch.errors import EXIT_USAGE, InputError

if TYPE_CHECKING:
    from tpulaunch.plan import JobPlan


def validate(
    files: Files = None,
    filename: FileFlag = None,
    namespace: Namespace = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="table or json.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
) -> None:
    """Check specs as far as no cluster is needed.

    Every fault of every file is reported with file and line. Nothing is contacted: neither cluster nor data.
    """
    if output not in (Format.TABLE, Format.JSON):
        raise InputError(f"-o {output.value} is not for validate; use table or json")
    from tpuworker.errors import SpecError

    summaries, refused = [], False
    for path in chosen(files, filename):
        try:
            source = read_source(path)
            summaries.append(_summary(source, _plan(source, namespace)))
        except (InputError, SpecError) as error:
            sys.stderr.write(f"{error}\n")
            refused = True
    if output is Format.JSON:
        emit_json(summaries)
    else:
        for summary in summaries:
            emit(_sentence(summary))
    if refused:
        raise typer.Exit(EXIT_USAGE)


def _plan(source: Source, namespace: str | None) -> JobPlan:
    """Return the plan; a missing image is only remarked, since a local run needs none."""
    from tpulaunch.plan import draft_plan
    from tpulaunch.plan.make import with_lines
    from tpuworker.errors import SpecError

    plan, faults = draft_plan(source.job, source.text, namespace=namespace, login=login_name())
    grave = [fault for fault in faults if fault.path != "spec.worker.image"]
    if grave:
        raise SpecError(with_lines(grave, source.text), source.where)
    if source.job.spec.worker.image is None:
        remark(source.where, "spec.worker.image: none, which is enough for run --local; submit needs one")
    for sentence in plan.remarks:
        remark(source.where, sentence)
    proved_manifest(plan)
    return plan


def _summary(source: Source, plan: JobPlan) -> dict[str, Any]:
    job, shape = source.job, source.job.spec.slice.shape
    return {
        "file": source.where,
        "name": plan.name,
        "namespace": plan.namespace,
        "generation": shape.generation.name,
        "topology": job.spec.slice.topology,
        "machine": shape.machine.name,
        "slices": plan.num_slices,
        "hostsPerSlice": plan.hosts_per_slice,
        "chips": job.spec.slice.num_chips,
        "devices": job.num_devices,
        "globalBatch": [job.spec.data.global_batch_size, job.spec.data.max_length],
        "rowsPerHost": job.rows_per_host,
        "rowsPerDevice": job.rows_per_device,
        "lanes": job.num_lanes,
    }


def _sentence(summary: dict[str, Any]) -> str:
    rows, length = summary["globalBatch"]
    return (
        f"{summary['file']}: valid: {summary['name']}: {_count(summary['slices'], 'slice')} of "
        f"{summary['generation']} {summary['topology']}, {_count(summary['hostsPerSlice'], 'host')} each "
        f"({summary['machine']}), {_count(summary['devices'], 'device')}; batch [{rows}, {length}], "
        f"{_count(summary['rowsPerHost'], 'row')} a host"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
