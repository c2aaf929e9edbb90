"""``tpulaunch diff``: what submit would change, and whether the live job can take it."""

from __future__ import annotations

import typer

from tpulaunch.cli.access import Access, say, with_access
from tpulaunch.cli.output import emit
from tpulaunch.cli.source import FileFlag, Files, chosen, plan_source, read_source
from tpulaunch.errors import EXIT_DIFFERS, EXIT_ERROR, EXIT_USAGE, LauncherError


class DiffFailedError(LauncherError):
    """The comparison could not be made; never exit 1, which says that something differs."""

    exit_code = EXIT_USAGE


@with_access
def diff(access: Access, *, files: Files = None, filename: FileFlag = None) -> None:
    """Show what submit would change.

    Only fields that tpulaunch sets are compared: defaults, and what Kueue or webhooks add, are no difference. Exit
    code 0: nothing differs; 1: something does; more: the comparison failed.
    """
    try:
        differs = _diff(access, chosen(files, filename))
    except LauncherError as error:
        if error.exit_code == EXIT_ERROR:
            raise DiffFailedError(str(error)) from error
        raise
    if differs:
        raise typer.Exit(EXIT_DIFFERS)


def _diff(access: Access, paths: list[str]) -> bool:
    from tpulaunch.check import wanted_object
    from tpulaunch.cluster.diff import differences, unified
    from tpulaunch.cluster.kinds import JOBSET

    planned = [(source := read_source(path), plan_source(source, access.namespace)[0]) for path in paths]
    api, differs = access.connect(), False
    for source, plan in planned:
        namespace, _ = access.namespace_in(api, plan.namespace)
        wanted = wanted_object(plan)
        live = api.get(JOBSET, namespace, plan.name)
        text = unified(live, wanted, f"live {JOBSET.spelled}/{plan.name} in {namespace}", source.where)
        if not text:
            continue
        differs = True
        emit(text)
        fixed = sum(d.is_immutable for d in differences(live, wanted)) if live else 0
        if fixed:
            say(
                f"{fixed} field{'s' if fixed != 1 else ''} cannot change in place: "
                "submit --replace ends the job and starts anew"
            )
    return differs
