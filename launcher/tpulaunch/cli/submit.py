"""``tpulaunch submit``: the rendered object brought to the cluster, and the job followed to its end if asked."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.access import Access, say, seconds, with_access
from tpulaunch.cli.output import Format, emit, emit_json, remark
from tpulaunch.cli.run import AcceptChangedData
from tpulaunch.cli.source import FileFlag, Files, Source, chosen, plan_source, read_source
from tpulaunch.errors import InputError, JobFailedError

if TYPE_CHECKING:
    from tpulaunch.cluster.api import Api
    from tpulaunch.cluster.apply import Submitted
    from tpulaunch.plan import Switches

#: How long a predecessor may take to end before a submission gives up, unless --timeout says otherwise.
_END_SECONDS = 900.0


class DryRun(StrEnum):
    """``--dry-run``, as kubectl has it."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@with_access
def submit(
    access: Access,
    *,
    files: Files = None,
    filename: FileFlag = None,
    dry_run: Annotated[
        DryRun, typer.Option("--dry-run", help="client: ask nobody; server: ask everybody, store nothing.")
    ] = DryRun.NONE,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the live job, wait until its pods are gone, start anew.")
    ] = False,
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields that other managers own.")
    ] = False,
    accept_changed_data: AcceptChangedData = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Follow its logs until it has ended.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="Limit of all waiting, 90s or 2h; then exit 124.", show_default=False),
    ] = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="name, json or yaml.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
) -> None:
    """Create the job on the cluster, or update it.

    The server is asked in a dry run first, so nothing half-done stays behind. Submitting the same file twice changes
    nothing. With --wait or --follow the exit code is the job's: 0, 125 if it failed, 124 if time ran out.
    """
    limit = seconds(timeout, "--timeout")
    sources = [read_source(path) for path in chosen(files, filename)]
    _judge(output, len(sources), waits=wait or follow, follow=follow, dry_run=dry_run)
    from tpulaunch.plan import Switches

    switches = Switches(accept_changed_data=accept_changed_data)
    if dry_run is DryRun.CLIENT:
        _show_client_side(access, sources, switches, output)
        return
    from tpulaunch.cluster.wait import Deadline

    planned = [(source, plan_source(source, access.namespace, switches)[0]) for source in sources]
    api = access.connect()
    deadline = Deadline.after(limit)
    for source, plan in planned:
        for sentence in plan.remarks:
            remark(source.where, sentence)
        namespace, origin = access.namespace_in(api, plan.namespace)
        say(f"{api.where}, namespace {namespace} ({origin})")
        done = _send(api, plan, namespace, dry_run, replace=replace, force=force_conflicts, limit=limit)
        _show(done, output)
        if dry_run is DryRun.NONE:
            _remark_on_ended(done, source, plan.name, waits=wait or follow)
            if follow:
                from tpulaunch.cli.logs import follow_to_end

                follow_to_end(api, namespace, plan.name, deadline)
            elif wait:
                _wait(api, namespace, plan.name, deadline)


def _judge(output: Format, num_files: int, *, waits: bool, follow: bool, dry_run: DryRun) -> None:
    if output is Format.WIDE:
        raise InputError("-o wide is not for submit; use name, json or yaml")
    if waits and dry_run is not DryRun.NONE:
        raise InputError(f"--wait and --follow wait for a job, and --dry-run={dry_run.value} starts none")
    if follow and num_files > 1:
        raise InputError("--follow is for one FILE; use --wait, or tpulaunch logs")


def _send(
    api: Api, plan: Any, namespace: str, dry_run: DryRun, *, replace: bool, force: bool, limit: float | None
) -> Any:
    from tpulaunch.check import wanted_object
    from tpulaunch.cluster.apply import submit as bring
    from tpulaunch.cluster.wait import Deadline

    return bring(
        api,
        wanted_object(plan),
        namespace,
        is_dry_run=dry_run is DryRun.SERVER,
        is_replacement=replace,
        is_forced=force,
        deadline=Deadline.after(_END_SECONDS if limit is None else limit),
        notify=say,
    )


def _show_client_side(access: Access, sources: list[Source], switches: Switches, output: Format) -> None:
    from tpulaunch.check import wanted_object

    for index, source in enumerate(sources):
        plan, text = plan_source(source, access.namespace, switches)
        for sentence in plan.remarks:
            remark(source.where, sentence)
        if output is Format.JSON:
            emit_json(wanted_object(plan))
        elif output is Format.YAML:
            emit(("---\n" if index else "") + text)
        else:
            suffix = "" if output is Format.NAME else " created (client dry run)"
            emit(f"jobset.jobset.x-k8s.io/{plan.name}{suffix}")


def _show(done: Submitted, output: Format) -> None:
    from tpulaunch.cli.output import emit_yaml
    from tpulaunch.cluster.masking import mask_object
    from tpulaunch.cluster.objects import name_of

    if output is Format.JSON:
        emit_json(mask_object(done.jobset))
    elif output is Format.YAML:
        emit_yaml(mask_object(done.jobset))
    else:
        suffix = "" if output is Format.NAME else f" {done.verb}{' (server dry run)' if done.is_dry_run else ''}"
        emit(f"jobset.jobset.x-k8s.io/{name_of(done.jobset)}{suffix}")


def _remark_on_ended(done: Submitted, source: Source, name: str, *, waits: bool) -> None:
    from tpulaunch.cluster.conditions import phase_of

    phase = phase_of(done.jobset)
    if done.verb == "unchanged" and phase.is_terminal:
        remark(source.where, f"{name} has already {phase.lower()}; --replace runs it again")
    elif done.verb != "unchanged" and not waits:
        say(f"tpulaunch status {name} shows its state, tpulaunch logs -f {name} its output")


def _wait(api: Api, namespace: str, name: str, deadline: Any) -> None:
    from tpulaunch.cluster.conditions import Phase
    from tpulaunch.cluster.wait import await_end

    told: list[Phase] = []

    def tell(jobset: dict[str, Any]) -> None:
        from tpulaunch.cluster.conditions import phase_of

        if (phase := phase_of(jobset)) not in told[-1:]:
            told.append(phase)
            say(f"{name}: {phase}")

    if await_end(api, namespace, name, deadline, tell) is Phase.FAILED:
        raise job_failed(api, namespace, name)


def job_failed(api: Api, namespace: str, name: str) -> JobFailedError:
    """Return the error for a job that failed, with its cause and remedy."""
    from tpulaunch.cluster.explain import explain
    from tpulaunch.cluster.logs import JobRef
    from tpulaunch.cluster.observe import observe

    cause = explain(observe(JobRef(api, namespace, name), with_progress=False))
    words = f": {cause.cause}\nwhat to do: {cause.remedy}" if cause else ""
    return JobFailedError(f"the job {name} failed{words}")
