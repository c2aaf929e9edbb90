"""The console entry: finds the command, runs it, and turns whatever it raises into a message and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tpulaunch.cli.commands import COMMANDS
from tpulaunch.errors import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_OK, LauncherError
from tpuworker.errors import WorkerError

#: Shows the traceback of an error that nobody foresaw.
ENV_DEBUG = "TPULAUNCH_DEBUG"
#: Set by the completion scripts to what they want to know.
COMPLETION_VARIABLE = "_TPULAUNCH_COMPLETE"
_EPILOG = (
    "Exit codes: 0 good; 1 error; 2 usage or invalid spec; 3 not found; 4 conflict; 124 timed out; 125 job failed."
)


class _LazyGroup(TyperGroup):
    """A group whose commands are listed from a table and imported only when one of them runs."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer's signature
        """Return a command that knows its help line; :meth:`resolve_command` asks for the real one."""
        entry = COMMANDS.get(cmd_name)
        return entry and TyperCommand(cmd_name, help=entry.help, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, (_load(str(name)) if command is not None else None), rest


def _load(name: str) -> Any:
    entry = COMMANDS[name]
    try:
        module = importlib.import_module(f"tpulaunch.cli.{entry.module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tpulaunch"):
            raise
        raise LauncherError(
            f"{name} needs the package {error.name}, which is not installed: pip install 'tpulaunch[jax]' or "
            "'tpulaunch[torch-xla]' brings the worker's, pip install tpulaunch the launcher's"
        ) from None
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, help=getattr(module, entry.function).__doc__)(getattr(module, entry.function))
    return typer.main.get_command(app)


_app = typer.Typer(
    name="tpulaunch",
    cls=_LazyGroup,
    rich_markup_mode=None,  # rich would double the time of --help
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from tpulaunch.cli.output import installed_version

        typer.echo(f"tpulaunch {installed_version()}")
        raise typer.Exit


@_app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One spec for a TPU training job: checked before it costs anything, launched as a JobSet, proved before step 1."""


def run() -> None:
    """Run the command line of this process and leave it with the command's exit code."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every message goes to stderr, no traceback to anybody."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except (LauncherError, WorkerError) as error:
        return _refuse(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _refuse("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains while it ends
        return EXIT_ERROR
    except OSError as error:
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}", EXIT_ERROR)
    except Exception as error:
        if os.environ.get(ENV_DEBUG):
            raise
        what = f"{type(error).__name__}: {error}"
        return _refuse(f"a fault of tpulaunch itself: {what}\nplease report it; {ENV_DEBUG}=1 shows where", EXIT_ERROR)
    return code


def _run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(_app)
    # kubectl finds its plug-ins by name and shows the usage of "kubectl tpulaunch".
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - no file is meant
    prog_name = "kubectl tpulaunch" if program.startswith("kubectl-") else "tpulaunch"
    try:
        command.main(list(arguments), prog_name=prog_name, complete_var=COMPLETION_VARIABLE)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_OK if ended.code is None else EXIT_ERROR
    return EXIT_OK


def _refuse(message: str, code: int) -> int:
    try:
        sys.stderr.write(f"error: {message}\n" if "\n" not in message else f"error:\n{message}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody is left to be told
    return code
