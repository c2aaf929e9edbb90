"""The built wheel, in an empty environment, is a working launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".tpulaunch/tools/bin"))

pytestmark = [pytest.mark.registry, pytest.mark.skipif(UV is None, reason="builds and installs with uv")]


def uv(*arguments: object) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run([str(UV), *map(str, arguments)], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel built from the sdist, so that the sdist is proved complete as well."""
    directory = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", directory)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment that holds the wheel and what it needs, nothing else."""
    directory = tmp_path_factory.mktemp("environment") / "venv"
    uv("venv", "--quiet", "--python", sys.executable, directory)
    python = directory / "bin/python"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", wheel)
    return directory / "bin"


def test_the_wheel_holds_every_file_once_and_the_templates(wheel: Path) -> None:
    names = Counter(zipfile.ZipFile(wheel).namelist())
    assert [name for name, number in names.items() if number > 1] == []
    assert {"tpulaunch/manifests/jobset.yaml.j2", "tpulaunch/manifests/job.yaml.j2"} <= names.keys()
    assert not [name for name in names if name.startswith(("tests", "bench", "manifests"))]


def test_the_installed_launcher_renders_like_the_tree(environment: Path, tmp_path: Path) -> None:
    example = ROOT / "manifests/examples/v6e-multislice-torch-xla.yaml"
    done = subprocess.run(
        [environment / "tpulaunch", "render", example], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    golden = yaml.safe_load((ROOT / "tests/manifests/golden" / example.name).read_text())
    rendered = yaml.safe_load(done.stdout)
    assert rendered["metadata"]["annotations"].pop("tpulaunch.dev/version")
    assert rendered == golden


@pytest.mark.parametrize("arguments", [["init", "-"], ["tpus"], ["schema"], ["--version"], ["completion", "bash"]])
def test_the_installed_launcher_needs_nothing_of_the_worker(
    environment: Path, arguments: list[str], tmp_path: Path
) -> None:
    done = subprocess.run([environment / "tpulaunch", *arguments], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_needs_the_worker_says_how_to_get_it(environment: Path, tmp_path: Path) -> None:
    example = ROOT / "manifests/examples/v5e-single-host-text-jax.yaml"
    for command in (["plan", example], ["run", example, "--local"]):
        done = subprocess.run(
            [environment / "tpulaunch", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "pip install 'tpulaunch[jax]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_kubectl_finds_the_plug_in(environment: Path) -> None:
    done = subprocess.run([environment / "kubectl-tpulaunch", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl tpulaunch")
