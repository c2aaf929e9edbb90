"""Help is instant: it loads the command-line library, the table of commands, and next to nothing else."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

HELP = "from tpulaunch.cli.main import main; main(['--help'])"


def modules_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_loads_hardly_more_than_the_command_line_library() -> None:
    added = modules_after(HELP) - modules_after("import typer")
    assert not {"pydantic", "jinja2", "ruamel", "rich", "kubernetes", "pydantic_core"} & added
    ours = {name for name in added if name.startswith(("tpulaunch", "tpuworker"))}
    assert ours == {
        "tpulaunch",
        "tpulaunch.cli",
        "tpulaunch.cli.commands",
        "tpulaunch.cli.main",
        "tpulaunch.errors",
        "tpuworker",
        "tpuworker.errors",
    }
    assert len(added - ours) < 25


@pytest.mark.release
def test_help_takes_at_most_half_as_long_again_as_importing_typer() -> None:
    def seconds(statement: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    pairs = [(seconds("import typer"), seconds(HELP)) for _ in range(15)]
    assert statistics.median(ours / theirs for theirs, ours in pairs) <= 1.5
