"""Asks the worker's programs about data, each in a process of its own: the launcher never loads a data library."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

from tpulaunch.errors import EXIT_USAGE, InputError, LauncherError

#: A library that every worker has and no launcher needs.
_MARK_OF_A_WORKER = "pyarrow"
#: What to tell somebody who has the launcher alone.
NEEDS_WORKER = "this needs the worker's packages: pip install 'tpulaunch[jax]' or 'tpulaunch[torch-xla]'"


def has_worker() -> bool:
    """Say whether the worker's packages are installed beside the launcher."""
    return importlib.util.find_spec(_MARK_OF_A_WORKER) is not None


def ask_about_data(*arguments: str, document: str = "") -> Any:
    """Return what ``python -m tpuworker.describe`` answers.

    Args:
        arguments: Its command line.
        document: A spec, given to it on stdin.

    Raises:
        InputError: The data is not what the spec says; every fault, one a line.
        LauncherError: The worker's packages are not installed, or the data cannot be read now.
    """
    if not has_worker():
        raise LauncherError(NEEDS_WORKER)
    command = [sys.executable, "-m", "tpuworker.describe", *arguments]
    done = subprocess.run(command, input=document.encode(), capture_output=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    said = done.stderr.decode(errors="replace").strip()
    if "Traceback (most recent call last)" in said:
        said = f"a fault of tpuworker itself: {said.splitlines()[-1]}\nplease report it"
    raise (InputError if done.returncode == EXIT_USAGE else LauncherError)(said or "the worker gave no answer")
