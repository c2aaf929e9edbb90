"""The README's first command, word for word: proof, 50 steps, falling loss; in both backends."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run(command: str) -> str:
    """Return what a command of the README prints; it must be shown there and succeed."""
    assert command in README
    done = subprocess.run(
        command.split(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def losses(output: str) -> dict[int, float]:
    """Return the losses that host 0 told, by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"0/0 \|.*step +(\d+)/50 +loss +([\d.]+)", output)}


def judge(output: str) -> None:
    told = losses(output)
    assert "preflight passed" in output
    assert re.search(r"compilations +1 of 1 allowed", output)
    assert "rows/s" in output
    assert "ETA" in output
    assert set(told) == {1, 10, 20, 30, 40, 50}
    assert told[50] < told[10] < told[1]
    assert output.count("all 50 steps done") == 2


@pytest.mark.jax
def test_quickstart_proves_and_trains_with_jax() -> None:
    judge(run("make quickstart"))


@pytest.mark.torch_xla
def test_one_variable_makes_it_torch_xla() -> None:
    judge(run("make quickstart BACKEND=torch_xla"))
