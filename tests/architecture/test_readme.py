"""What the README shows is what the tree says of itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tpulaunch.cli.commands import COMMANDS
from tpuworker.spec import load_job

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    return (docstring or "").splitlines()[0].replace("``", "")


def rooms(package: Path) -> dict[str, str]:
    """Return the rooms of a package and what each says of itself."""
    found = {f"{package.relative_to(ROOT)}/": first_line(package / "__init__.py")}
    for path in package.iterdir():
        if (path / "__init__.py").exists():
            found[f"{path.name}/"] = first_line(path / "__init__.py")
        elif path.suffix == ".py" and not path.name.startswith("__"):
            found[path.name] = first_line(path)
    return found


def test_the_tree_names_every_room_with_its_own_words() -> None:
    tree = re.search(r"## The tree\n+```\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    shown: list[tuple[str, str]] = []
    for line in tree.group(1).splitlines():
        name, _, words = line.strip().partition(" ")
        shown.append((name, words.strip()))
    wanted = [*rooms(ROOT / "launcher/tpulaunch").items(), *rooms(ROOT / "worker/tpuworker").items()]
    assert sorted(shown) == sorted(wanted)


def test_the_job_of_the_readme_is_valid() -> None:
    document = re.search(r"```yaml\n(apiVersion.*?)```", README, re.DOTALL)
    assert document is not None
    job = load_job(document.group(1), "README.md")
    assert (job.num_hosts, job.num_devices) == (8, 32)


@pytest.mark.parametrize("command", re.findall(r"^tpulaunch (\w+)", README, re.MULTILINE))
def test_a_command_of_the_readme_exists(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tpulaunch", command, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_lists_every_command() -> None:
    listed = set(re.findall(r"`(\w+)(?: [^`]*)?`", README.partition("## Commands")[2].partition("Data goes to")[0]))
    assert set(COMMANDS) <= listed
