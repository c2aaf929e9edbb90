"""What comes along when a front door is opened, seen by a fresh interpreter; static contracts cannot see this."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "torch_xla", "jax", "numpy", "pyarrow", "datasets", "transformers", "tokenizers", "kubernetes")


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import tpulaunch",
        "import tpuworker",
        "import tpuworker.spec",
        "import tpulaunch.cli.main",
        "from tpulaunch.cli.main import run; import sys; sys.argv = ['tpulaunch', '--help']\n"
        "try: run()\nexcept SystemExit: pass",
    ],
)
def test_a_front_door_loads_no_heavy_library(statement: str) -> None:
    assert modules_after(statement).isdisjoint(HEAVY)


def test_the_package_itself_loads_nothing_but_python() -> None:
    assert "pydantic" not in modules_after("import tpulaunch, tpuworker")


def test_the_worker_loads_no_cluster_library() -> None:
    assert modules_after("import tpuworker.main").isdisjoint({"kubernetes", "typer", "jinja2", "tpulaunch"})


def test_the_guard_sees_a_library_that_is_loaded() -> None:
    assert "json" in modules_after("import json")
