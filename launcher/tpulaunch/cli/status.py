"""``tpulaunch status``: a job's state, every host's, and why it does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.access import Access, with_access
from tpulaunch.cli.list import list_jobs
from tpulaunch.cli.live import show_live
from tpulaunch.cli.output import Format, OutputOption, emit, emit_data, format_table, read_output
from tpulaunch.cli.state_view import HOST_HEADER, JOB_HEADER, as_data, cause_lines, host_row, job_row

if TYPE_CHECKING:
    from tpulaunch.cluster.logs import JobRef


@with_access
def status(
    access: Access,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The job; without it, all.", show_default=False)
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Redraw until the job has ended.")] = False,
    output: OutputOption = "table",
) -> None:
    """Show a job's state, every host's, and one cause with one remedy if it does not run.

    RESTARTS are those that count towards the limit; evictions and maintenance, which do not, stand behind the plus.
    """
    if name is None:
        list_jobs(**vars(access), watch=watch, output=output)
        return
    form = read_output(output)
    from tpulaunch.cluster.logs import JobRef

    api = access.connect()
    namespace, _ = access.namespace_in(api)
    job = JobRef(api, namespace, name.rpartition("/")[2])
    if form is Format.NAME:
        job.get()
        emit(f"jobset.jobset.x-k8s.io/{job.name}")
    elif form is not Format.TABLE and form is not Format.WIDE:
        emit_data(_data(job), form)
    elif watch:
        show_live(lambda: _text(job, is_wide=form is Format.WIDE))
    else:
        emit(_text(job, is_wide=form is Format.WIDE)[0])


def _data(job: JobRef) -> dict[str, Any]:
    from tpulaunch.cluster.explain import explain
    from tpulaunch.cluster.observe import observe
    from tpulaunch.cluster.state import job_state

    observed = observe(job)
    return as_data(job_state(observed), explain(observed))


def _text(job: JobRef, *, is_wide: bool) -> tuple[str, bool]:
    from tpulaunch.cluster.explain import explain
    from tpulaunch.cluster.observe import observe
    from tpulaunch.cluster.state import job_state

    observed = observe(job)
    state, cause = job_state(observed), explain(observed)
    blocks = [
        format_table(JOB_HEADER, [job_row(state, cause, observed.now)]),
        format_table(
            HOST_HEADER + (("POD", "ATTEMPT", "LAST WORDS") if is_wide else ()),
            [host_row(h, is_wide=is_wide) for h in state.hosts],
        ),
    ]
    if cause is not None:
        blocks.append("\n".join(cause_lines(cause)))
    elif not observed.events and not state.phase.is_terminal:
        blocks.append("no events: they live for about an hour")
    return "\n\n".join(blocks), state.phase.is_terminal
