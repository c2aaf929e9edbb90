"""From the FILE arguments of a command to jobs and plans; the login and the files are read here and nowhere else."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpulaunch.errors import InputError, RenderError

if TYPE_CHECKING:
    from tpulaunch.plan import JobPlan, Switches
    from tpuworker.spec import TPUJob

#: More than this is no spec; reading on would only fill the memory.
_LARGEST_FILE_BYTES = 16 * 1024 * 1024

#: FILE arguments, and the same as kubectl spells them.
Files = Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Specs; - is stdin.", show_default=False)]
FileFlag = Annotated[list[str] | None, typer.Option("-f", "--filename", help="A spec, as kubectl spells it.")]
OneFile = Annotated[str | None, typer.Argument(metavar="FILE", help="The spec; - is stdin.", show_default=False)]
OneFileFlag = Annotated[str | None, typer.Option("-f", "--filename", help="The spec, as kubectl spells it.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace; goes before the spec's own.", show_default=False)
]


@dataclass(frozen=True)
class Source:
    """A spec that was read and understood.

    Attributes:
        where: Name for messages: the path, or ``stdin``.
        text: The text, byte for byte.
        job: What it says.
    """

    where: str
    text: str
    job: TPUJob


def chosen(files: Sequence[str] | None, flagged: Sequence[str] | None) -> list[str]:
    """Return the paths given as arguments and by ``-f``.

    Raises:
        InputError: There is none, or stdin is named twice.
    """
    paths = [*(files or ()), *(flagged or ())]
    if not paths:
        raise InputError("no FILE given; tpulaunch init writes one to start from")
    if paths.count("-") > 1:
        raise InputError("stdin (-) can be read only once")
    return paths


def chosen_one(file: str | None, flagged: str | None) -> str:
    """Return the one path given as an argument or by ``-f``.

    Raises:
        InputError: There is none, or there are two.
    """
    paths = chosen([file] if file is not None else None, [flagged] if flagged is not None else None)
    if len(paths) > 1:
        raise InputError(f"one FILE is wanted; found {paths[0]} and {paths[1]}")
    return paths[0]


def read_source(path: str) -> Source:
    """Return the job a file (or ``-``, stdin) describes.

    Raises:
        InputError: The file cannot be read as text.
        SpecError: Every fault of the spec, with file and line.
    """
    from tpuworker.spec import load_job

    where = "stdin" if path == "-" else path
    text = _read_text(path, where)
    return Source(where, text, load_job(text, where))


def plan_source(source: Source, namespace: str | None = None, switches: Switches | None = None) -> tuple[JobPlan, str]:
    """Return the plan of a job and its manifest, proved to say what the plan says.

    Args:
        source: The spec.
        namespace: Goes before the spec's own.
        switches: What this run is for beside the spec.

    Raises:
        SpecError: The job cannot run on a cluster.
        RenderError: The manifest contradicts the plan.
    """
    from tpulaunch.cli.output import installed_version
    from tpulaunch.plan import Switches, make_plan

    plan = make_plan(
        source.job,
        source.text,
        where=source.where,
        namespace=namespace,
        login=login_name(),
        version=installed_version(),
        switches=switches or Switches(),
    )
    return plan, proved_manifest(plan)


def proved_manifest(plan: JobPlan) -> str:
    """Return the manifest of a plan after reading it back.

    Raises:
        RenderError: It contradicts the plan.
    """
    from tpulaunch.check import check
    from tpulaunch.render import render

    text = render(plan)
    if problems := check(text, plan):
        raise RenderError(problems)
    return text


def login_name() -> str | None:
    """Return who is logged in, or None where the system knows no name (a container without a passwd entry)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return None


def _read_text(path: str, where: str) -> str:
    try:
        data = sys.stdin.buffer.read(_LARGEST_FILE_BYTES) if path == "-" else _read_file(Path(path))
    except OSError as error:
        raise InputError(f"{where}: {_reason(error, path)}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is not UTF-8; a spec is YAML text") from None


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LARGEST_FILE_BYTES)


def _reason(error: OSError, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no such file in {Path.cwd()}"
    if isinstance(error, IsADirectoryError):
        inside = sorted(entry.name for entry in Path(path).glob("*.y*ml"))[:3]
        return f"a directory; wanted one file{', for example ' + ', '.join(inside) if inside else ''}"
    return (error.strerror or str(error)).lower()
