"""``tpulaunch doctor``: whether the cluster can run jobs, and what to do where it cannot."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tpulaunch.cli.access import Access, with_access
from tpulaunch.cli.output import Format, emit, emit_json, use_color
from tpulaunch.errors import EXIT_ERROR, InputError, LauncherError

_COLORS = {"ok": "32", "warn": "33", "fail": "31"}


@with_access
def doctor(
    access: Access,
    *,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="json.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
) -> None:
    """Check the cluster: reach, versions, what is installed, rights, queues, and the slices on offer.

    Exit code 1 if jobs cannot run there.
    """
    if output not in (Format.TABLE, Format.JSON):
        raise InputError(f"-o {output.value} is not for doctor; use json")
    from tpulaunch.cluster.doctor import Finding, examine

    findings: list[Finding] = []
    try:
        api = access.connect()
        namespace, _ = access.namespace_in(api)
        for finding in examine(api, namespace):
            findings.append(finding)
            if output is Format.TABLE:
                _print(finding)
    except LauncherError as error:
        findings.append(Finding("cluster", "fail", str(error)))
        if output is Format.TABLE:
            _print(findings[-1])
    if output is Format.JSON:
        emit_json([vars(finding) for finding in findings])
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _print(finding) -> None:  # type: ignore[no-untyped-def]
    mark = finding.verdict.ljust(4)
    if use_color(sys.stdout):
        mark = f"\x1b[{_COLORS[finding.verdict]}m{mark}\x1b[0m"
    emit(f"{mark}  {finding.subject}: {finding.words}")
    if finding.remedy:
        emit(f"      {finding.remedy}")
    sys.stdout.flush()
