"""The API server's own YAML reader and the kubelet's own expansion give back what the user wrote."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.builders import job_document
from tests.launcher.builders import IMAGE
from tests.launcher.test_render_and_check import HOSTILE
from tests.manifests.schemas import module_directory
from tpulaunch.check import wanted_object
from tpulaunch.plan import make_plan
from tpulaunch.render import render
from tpuworker.spec import load_job

SOURCE = Path(__file__).parent / "oracle"
EXPANSION = "third_party/forked/golang/expansion/expand.go"
#: What the kubelet's expansion and Go's YAML react to, in every mixture.
ALPHABET = [
    "$",
    "$(",
    "$$",
    "(",
    ")",
    "HOME",
    "é",
    "🚀",
    " ",
    "\n",
    "\t",
    "\\",
    '"',
    "'",
    "#",
    ":",
    "- ",
    "\x85",
    "\u2028",
    "\x7f",
    "0",
]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that reads as Kubernetes does, built from Kubernetes' own sources."""
    if shutil.which("go") is None:
        pytest.skip("the reader is built with Go 1.24 or newer")
    directory = tmp_path_factory.mktemp("oracle") / "source"
    shutil.copytree(SOURCE, directory)
    (directory / "expansion").mkdir()
    expand = module_directory("k8s.io/kubernetes") / EXPANSION
    (directory / "expansion/expand.go").write_bytes(expand.read_bytes())
    subprocess.run(["go", "build", "-o", "oracle", "."], cwd=directory, check=True, capture_output=True)
    return directory / "oracle"


def read(oracle: Path, manifest: str) -> dict[str, Any]:
    done = subprocess.run([oracle], input=manifest.encode(), capture_output=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def mixtures(number: int) -> list[str]:
    choose = random.Random(7)
    return ["".join(choose.choices(ALPHABET, k=choose.randint(1, 12))) for _ in range(number)]


def test_every_hostile_text_reaches_the_process_as_it_was_written(oracle: Path) -> None:
    env = {f"V{index}": value for index, value in enumerate([*HOSTILE, *mixtures(300)])}
    document = job_document(
        worker={"image": IMAGE},
        train={"entrypoint": "a.b", "env": env},
        metadata={"name": "tiny", "annotations": {"example.com/note": "".join(HOSTILE)}},
    )
    spec_text = json.dumps(document)
    plan = make_plan(load_job(spec_text), spec_text)
    told = read(oracle, render(plan))
    assert told["object"] == wanted_object(plan)
    assert {name: told["env"][name] for name in env} == env


def test_a_spec_shown_as_lines_is_read_back_whole(oracle: Path) -> None:
    spec_text = "# a comment: with 'quotes'\n" + json.dumps(job_document(worker={"image": IMAGE}), indent=2) + "\n"
    plan = make_plan(load_job(spec_text), spec_text)
    told = read(oracle, render(plan))
    assert told["object"] == wanted_object(plan)
