"""``tpulaunch completion``: the script that makes a shell complete commands, flags and files."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell.

    For this session: ``source <(tpulaunch completion bash)``. ``tpulaunch --install-completion`` makes it stay.
    """
    from tpulaunch.cli.main import COMPLETION_VARIABLE, main

    os.environ[COMPLETION_VARIABLE] = f"source_{shell.value}"  # the scripts come from the completion machinery itself
    try:
        code = main([])
    finally:
        del os.environ[COMPLETION_VARIABLE]
    raise typer.Exit(code)
