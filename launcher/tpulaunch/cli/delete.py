"""``tpulaunch delete``: jobs and everything they own, and the wait for their end."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tpulaunch.cli.access import Access, say, seconds, with_access
from tpulaunch.cli.output import emit
from tpulaunch.cli.source import FileFlag, plan_source, read_source
from tpulaunch.cli.submit import DryRun
from tpulaunch.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from tpulaunch.cluster.api import Api


class Cascade(StrEnum):
    """``--cascade``, as kubectl has it."""

    BACKGROUND = "background"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"


@with_access
def delete(
    access: Access,
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Jobs.", show_default=False)] = None,
    filename: FileFlag = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job of tpulaunch in the namespace.")] = False,
    selector: Annotated[str | None, typer.Option("-l", "--selector", help="Jobs by label.", show_default=False)] = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="A job that is not there is no error.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the pods are gone.")] = True,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Limit of the wait, 90s.", show_default=False)
    ] = None,
    grace_period: Annotated[
        int | None,
        typer.Option("--grace-period", help="Seconds between SIGTERM and SIGKILL.", min=0, show_default=False),
    ] = None,
    cascade: Annotated[Cascade, typer.Option("--cascade", help="What becomes of the pods.")] = Cascade.FOREGROUND,
    dry_run: Annotated[DryRun, typer.Option("--dry-run", help="none, client or server.")] = DryRun.NONE,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask, with --all or -l.")] = False,
    output: Annotated[str | None, typer.Option("-o", "--output", help="name.", show_default=False)] = None,
) -> None:
    """Delete jobs with everything they own, and wait until their pods are gone.

    Only objects that tpulaunch made are touched, each by the identity it was found with: a job that somebody put in its
    place meanwhile stays.
    """
    if output not in (None, "name"):
        raise InputError(f"-o {output} is not for delete; use name")
    limit = seconds(timeout, "--timeout")
    if not (names or filename or everything or selector):
        raise InputError("no NAME given; --all deletes every job of the namespace")
    if (names or filename) and (everything or selector):
        raise InputError("NAME and --all or -l contradict each other")
    from tpulaunch.cluster.delete import delete_job
    from tpulaunch.cluster.wait import Deadline

    flagged = [plan_source(read_source(path), access.namespace)[0] for path in filename or ()]
    api = access.connect()
    namespace, origin = access.namespace_in(api, next((plan.namespace for plan in flagged if plan.namespace), None))
    say(f"{api.where}, namespace {namespace} ({origin})")
    wanted = [*(names or ()), *(plan.name for plan in flagged)]
    chosen = wanted or _matching(api, namespace, selector)
    if not wanted and not yes and dry_run is DryRun.NONE:
        _confirm(chosen, namespace)
    deadline = Deadline.after(limit) if wait else None
    missing: list[str] = []
    for name in chosen:
        found = _delete_one(api, namespace, name)
        if found is None:
            missing.append(name)
            continue
        job, jobset = found
        if dry_run is not DryRun.CLIENT:
            delete_job(
                job,
                jobset,
                cascade=cascade.value,
                grace_seconds=grace_period,
                is_dry_run=dry_run is DryRun.SERVER,
                deadline=deadline,
            )
        suffix = (
            "" if output == "name" else " deleted" + ("" if dry_run is DryRun.NONE else f" ({dry_run.value} dry run)")
        )
        emit(f"jobset.jobset.x-k8s.io/{name}{suffix}")
    if missing and not ignore_not_found:
        raise NotFoundError(f"not found in namespace {namespace} ({api.where}): {', '.join(missing)}")


def _delete_one(api: Api, namespace: str, name: str):  # type: ignore[no-untyped-def]
    from tpulaunch.cluster.logs import JobRef

    job = JobRef(api, namespace, name.rpartition("/")[2])  # kubectl users write jobset/NAME
    try:
        return job, job.get()
    except NotFoundError:
        return None


def _matching(api: Api, namespace: str, selector: str | None) -> list[str]:
    from tpulaunch.cluster.objects import name_of
    from tpulaunch.cluster.observe import list_jobs

    return sorted(name_of(jobset) for jobset in list_jobs(api, namespace, selector))


def _confirm(names: list[str], namespace: str) -> None:
    if not names:
        say(f"no job of tpulaunch in namespace {namespace}")
        return
    if not sys.stdin.isatty():
        raise InputError(f"--yes is needed to delete {len(names)} jobs without being asked: {', '.join(names)}")
    say(f"in namespace {namespace}: {', '.join(names)}")
    typer.confirm(f"Delete {len(names)} jobs?", abort=True, err=True)
