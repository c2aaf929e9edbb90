"""``tpulaunch run --local``: the job on this machine, one process for each host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpulaunch.cli.source import OneFile, OneFileFlag, chosen_one, read_source
from tpulaunch.errors import InputError, LauncherError

Hosts = Annotated[
    int | None,
    typer.Option("--hosts", help="Hosts to simulate. Default: as many as the spec has.", min=1, show_default=False),
]
Python = Annotated[
    str | None,
    typer.Option("--python", help="Interpreter with the worker's packages. Default: this one.", show_default=False),
]
Raw = Annotated[bool, typer.Option("--raw", help="Leave the workers' JSON lines as they are.")]
AcceptChangedData = Annotated[
    bool, typer.Option("--accept-changed-data", help="Resume although files, tokenizer or layout changed.")
]


def run(
    file: OneFile = None,
    *,
    filename: OneFileFlag = None,
    local: Annotated[bool, typer.Option("--local", help="On this machine; the cluster's way is submit.")] = False,
    hosts: Hosts = None,
    python: Python = None,
    accept_changed_data: AcceptChangedData = False,
    raw: Raw = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Keep a page about the run in this file (HTML).", show_default=False)
    ] = None,
) -> None:
    """Run the job on this machine, host by host.

    Every host is a process with the environment that GKE would give it, and the CPU's devices. The first failure ends
    all of them, and its exit code is this command's: 42 means that a restart would be asked for.
    """
    if not local:
        raise InputError("run works on this machine only: write run FILE --local; submit FILE is for the cluster")
    raise typer.Exit(
        run_here(
            chosen_one(file, filename),
            num_hosts=hosts,
            python=python,
            accept_changed_data=accept_changed_data,
            is_raw=raw,
            preflight_only=False,
            report=report,
        )
    )


def run_here(
    path: str,
    *,
    num_hosts: int | None,
    python: str | None,
    accept_changed_data: bool,
    is_raw: bool,
    preflight_only: bool,
    report: Path | None = None,
) -> int:
    """Run a spec on this machine and return the exit code.

    Raises:
        InputError: The file or a flag cannot be used.
        SpecError: The spec is no valid job.
        LauncherError: The worker's packages are not installed.
    """
    from tpulaunch.cli.worker_process import NEEDS_WORKER, has_worker
    from tpulaunch.local import run as run_job

    source = read_source(path)
    if python is None and not has_worker():
        raise LauncherError(f"{NEEDS_WORKER}, or name another interpreter with --python")
    return run_job(
        source.job,
        source.text,
        num_hosts=num_hosts,
        python=python,
        preflight_only=preflight_only,
        accept_changed_data=accept_changed_data,
        is_raw=is_raw,
        report=report,
    )
