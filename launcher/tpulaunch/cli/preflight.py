"""``tpulaunch preflight``: the proof without training, on this machine or on the slice."""

from __future__ import annotations

from typing import Annotated

import typer

from tpulaunch.cli.access import Access, say, seconds, with_access
from tpulaunch.cli.output import remark
from tpulaunch.cli.run import AcceptChangedData, Hosts, Python, Raw, run_here
from tpulaunch.cli.source import OneFile, OneFileFlag, Source, chosen_one, plan_source, read_source
from tpulaunch.errors import InputError

#: How long an earlier proof of the same name may take to end before a new one gives up.
_END_SECONDS = 900.0


@with_access
def preflight(
    access: Access,
    *,
    file: OneFile = None,
    filename: OneFileFlag = None,
    submit: Annotated[
        bool, typer.Option("--submit", help="On the slice, as a job of its own: NAME-preflight.")
    ] = False,
    hosts: Hosts = None,
    python: Python = None,
    accept_changed_data: AcceptChangedData = False,
    raw: Raw = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="With --submit: limit of the waiting, 30m; then exit 124.", show_default=False),
    ] = None,
) -> None:
    """Prove shapes, steps and compilations without training.

    On this machine, every host is a process on the CPU. With --submit the same proof runs on the slice, its log is
    followed to the end, and the exit code is the proof's: 0, or 125.
    """
    path = chosen_one(file, filename)
    limit = seconds(timeout, "--timeout")
    if not submit:
        if limit is not None:
            raise InputError("--timeout is for --submit")
        code = run_here(
            path,
            num_hosts=hosts,
            python=python,
            accept_changed_data=accept_changed_data,
            is_raw=raw,
            preflight_only=True,
        )
        raise typer.Exit(code)
    for flag, value in (("--hosts", hosts), ("--python", python)):
        if value is not None:
            raise InputError(f"{flag} is for the proof on this machine; --submit takes the spec's own slices")
    _on_the_slice(access, read_source(path), limit, accept_changed_data)


def _on_the_slice(access: Access, source: Source, limit: float | None, accept_changed_data: bool) -> None:
    from tpulaunch.check import wanted_object
    from tpulaunch.cli.logs import follow_to_end
    from tpulaunch.cluster.apply import submit
    from tpulaunch.cluster.wait import Deadline
    from tpulaunch.plan import Switches

    switches = Switches(preflight_only=True, accept_changed_data=accept_changed_data)
    plan, _ = plan_source(source, access.namespace, switches)
    api = access.connect()
    for sentence in plan.remarks:
        remark(source.where, sentence)
    namespace, origin = access.namespace_in(api, plan.namespace)
    say(f"{api.where}, namespace {namespace} ({origin})")
    deadline = Deadline.after(limit)
    patience = Deadline.after(_END_SECONDS if limit is None else limit)
    done = submit(api, wanted_object(plan), namespace, is_replacement=True, deadline=patience, notify=say)
    say(f"jobset.jobset.x-k8s.io/{plan.name} {done.verb}")
    follow_to_end(api, namespace, plan.name, deadline)
