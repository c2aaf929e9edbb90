"""``tpulaunch logs``: every host in one stream, each line with its host before it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.access import Access, say, seconds, with_access
from tpulaunch.cli.log_printer import Color, LogPrinter
from tpulaunch.errors import EXIT_INTERRUPTED, InputError, WaitTimeoutError

if TYPE_CHECKING:
    from tpulaunch.cluster.api import Api
    from tpulaunch.cluster.logs import Selection

_HOST = re.compile(r"(\d+)/(\d+|\*)")


@with_access
def logs(
    access: Access,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job.", show_default=False)],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job has ended; exit code is its own.")
    ] = False,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="SLICE/HOST or SLICE/*; any number of times.", show_default=False)
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", help="Last lines of each host.", min=0, show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines younger than 10m.", show_default=False)
    ] = None,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="The container before the present one.")] = False,
    container: Annotated[
        str | None, typer.Option("-c", "--container", help="Container; default: worker.", show_default=False)
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show when each line was written.")] = False,
    prefix: Annotated[bool, typer.Option("--prefix/--no-prefix", help="SLICE/HOST before each line.")] = True,
    raw: Annotated[
        bool | None,
        typer.Option("--raw/--pretty", help="The worker's JSON lines as they are, or for people.", show_default=False),
    ] = None,
    color: Annotated[Color, typer.Option("--color", help="auto, always or never.")] = Color.AUTO,
) -> None:
    """Show the logs of all hosts as one stream.

    With -f hosts that wait are waited for, a new attempt of the job is announced, and the stream ends with the job;
    the exit code is then 0, or 125 if the job failed. Ctrl-C leaves the job running.
    """
    if follow and previous:
        raise InputError("--previous shows what has ended; it cannot be followed")
    from tpulaunch.cluster.logs import JobRef, label_width, print_logs
    from tpulaunch.cluster.pod_log import Choice

    choice = Choice(tail, seconds(since, "--since"), previous)
    selection = _selection(host, container)
    api = access.connect()
    namespace, _ = access.namespace_in(api)
    job = JobRef(api, namespace, name.rpartition("/")[2])
    jobset = job.get()
    selection.of(jobset)
    printer = LogPrinter(label_width(jobset), color=color, raw=raw, stamps=timestamps, prefix=prefix)
    if follow:
        _follow(job, selection, choice, printer)
    else:
        print_logs(job, selection, choice, printer.take)


def _selection(hosts: list[str] | None, container: str | None) -> Selection:
    from tpulaunch.cluster.logs import Selection
    from tpuworker.spec.wire import CONTAINER

    places: list[tuple[int, int | None]] = []
    for text in hosts or ():
        found = _HOST.fullmatch(text)
        if not found:
            raise InputError(f"--host: found {text!r}; wanted SLICE/HOST such as 0/1, or SLICE/* for a whole slice")
        places.append((int(found[1]), None if found[2] == "*" else int(found[2])))
    return Selection(tuple(places), container or CONTAINER)


def follow_to_end(api: Api, namespace: str, name: str, deadline: Any) -> None:
    """Follow a job just submitted; raises as the exit code of its end asks for."""
    from tpulaunch.cluster.logs import JobRef, Selection, label_width
    from tpulaunch.cluster.pod_log import Choice

    job = JobRef(api, namespace, name)
    printer = LogPrinter(label_width(job.get()))
    _follow(job, Selection(), Choice(), printer, deadline)


def _follow(job: Any, selection: Any, choice: Any, printer: LogPrinter, deadline: Any = None) -> None:
    from tpulaunch.cli.submit import job_failed
    from tpulaunch.cluster.conditions import Phase
    from tpulaunch.cluster.durations import format_age
    from tpulaunch.cluster.log_follow import follow_logs

    try:
        end = follow_logs(job, selection, choice, printer.take, why=lambda: _why(job), deadline=deadline)
    except KeyboardInterrupt:
        say(
            f"\ndetached; the job runs on. tpulaunch logs -f {job.name} attaches again, "
            f"tpulaunch delete {job.name} ends it"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if end is None:
        raise WaitTimeoutError(f"the job {job.name} had not ended within {format_age(deadline.seconds)}; it runs on")
    if end is Phase.FAILED:
        raise job_failed(job.api, job.namespace, job.name)


def _why(job: Any) -> str:
    from tpulaunch.cluster.explain import explain
    from tpulaunch.cluster.observe import observe

    cause = explain(observe(job, with_progress=False))
    return f"{cause.cause}; {cause.remedy}" if cause else ""
