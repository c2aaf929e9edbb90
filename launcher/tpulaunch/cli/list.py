"""``tpulaunch list``: the jobs of a namespace, or of all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.access import Access, with_access
from tpulaunch.cli.live import show_live
from tpulaunch.cli.output import Format, emit, emit_json, emit_yaml, format_table
from tpulaunch.cli.state_view import JOB_HEADER, as_data, job_row

if TYPE_CHECKING:
    from tpulaunch.cluster.api import Api

_PARALLEL = 8


@with_access
def list_jobs(
    access: Access,
    *,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Every namespace.")] = False,
    selector: Annotated[str | None, typer.Option("-l", "--selector", help="Jobs by label.", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Redraw until interrupted.")] = False,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="wide, json, yaml or name.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
) -> None:
    """List the jobs that tpulaunch made, in the words of ``kubectl get jobset`` and some more."""
    api = access.connect()
    namespace = None if all_namespaces else access.namespace_in(api)[0]
    if output in (Format.TABLE, Format.WIDE):
        if watch:
            show_live(lambda: (_table(api, namespace, selector, output), False))
        else:
            emit(_table(api, namespace, selector, output))
        return
    found = _observed(api, namespace, selector)
    if output is Format.NAME:
        for state, *_ in found:
            emit(f"jobset.jobset.x-k8s.io/{state.name}")
    else:
        (emit_json if output is Format.JSON else emit_yaml)([as_data(state, cause) for state, cause, _ in found])


def _table(api: Api, namespace: str | None, selector: str | None, output: Format) -> str:
    found = _observed(api, namespace, selector)
    if not found:
        return f"no jobs of tpulaunch in {f'namespace {namespace}' if namespace else 'any namespace'}"
    is_wide, every = output is Format.WIDE, namespace is None
    header = (("NAMESPACE",) if every else ()) + JOB_HEADER + (("WHY",) if is_wide else ())
    rows = [
        ((state.namespace,) if every else ())
        + job_row(state, cause, now)
        + ((cause.cause if cause else "",) if is_wide else ())
        for state, cause, now in found
    ]
    return format_table(header, rows)


def _observed(api: Api, namespace: str | None, selector: str | None) -> list[Any]:
    from tpulaunch.cluster.explain import explain
    from tpulaunch.cluster.logs import JobRef
    from tpulaunch.cluster.objects import dig, name_of
    from tpulaunch.cluster.observe import list_jobs as find_jobs
    from tpulaunch.cluster.observe import observe
    from tpulaunch.cluster.state import job_state

    def look(jobset: dict[str, Any]) -> Any:
        job = JobRef(api, str(dig(jobset, "metadata", "namespace")), name_of(jobset))
        observed = observe(job, jobset, with_progress=False)
        return job_state(observed), explain(observed), observed.now

    with ThreadPoolExecutor(_PARALLEL) as workers:
        found = list(workers.map(look, find_jobs(api, namespace, selector)))
    return sorted(found, key=lambda item: (item[0].namespace, item[0].name))
