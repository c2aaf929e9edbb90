"""``tpulaunch list``: the jobs of a namespace, or of all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.access import Access, with_access
from tpulaunch.cli.live import show_live
from tpulaunch.cli.output import Format, OutputOption, emit, emit_data, format_table, read_output
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
    field_selector: Annotated[
        str | None, typer.Option("--field-selector", help="Jobs by field: metadata.name=NAME.", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Redraw until interrupted.")] = False,
    output: OutputOption = "table",
) -> None:
    """List the jobs that tpulaunch made, in the words of ``kubectl get jobset`` and some more."""
    form = read_output(output)
    api = access.connect()
    namespace = None if all_namespaces else access.namespace_in(api)[0]

    def find() -> list[Any]:
        return _observed(api, namespace, selector, field_selector)

    if form is Format.TABLE or form is Format.WIDE:
        is_wide = form is Format.WIDE
        if watch:
            show_live(lambda: (_table(find, namespace, is_wide=is_wide), False))
        else:
            emit(_table(find, namespace, is_wide=is_wide))
        return
    found = find()
    if form is Format.NAME:
        for state, *_ in found:
            emit(f"jobset.jobset.x-k8s.io/{state.name}")
    else:
        emit_data([as_data(state, cause) for state, cause, _ in found], form)


def _table(find: Callable[[], list[Any]], namespace: str | None, *, is_wide: bool) -> str:
    found = find()
    if not found:
        return f"no jobs of tpulaunch in {f'namespace {namespace}' if namespace else 'any namespace'}"
    every = namespace is None
    header = (("NAMESPACE",) if every else ()) + JOB_HEADER + (("WHY",) if is_wide else ())
    rows = [
        ((state.namespace,) if every else ())
        + job_row(state, cause, now)
        + ((cause.cause if cause else "",) if is_wide else ())
        for state, cause, now in found
    ]
    return format_table(header, rows)


def _observed(api: Api, namespace: str | None, labels: str | None, fields: str | None) -> list[Any]:
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
        found = list(workers.map(look, find_jobs(api, namespace, labels, fields)))
    return sorted(found, key=lambda item: (item[0].namespace, item[0].name))
