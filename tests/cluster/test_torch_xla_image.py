"""The worker image for PyTorch/XLA without a cluster: two hosts as containers meet, train, stop and fail together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import images
from tests.session.builders import STEPS_PER_EPOCH, document_over, write_corpus
from tpulaunch.local.run import host_environments
from tpuworker.spec import load_job, wire

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("runc") is None, reason="needs root and runc"),
]

HOSTS = 2
PATIENCE_SECONDS = 400
TRAINING = {"entrypoint": "tpuworker.training.torch_xla_lm.main", "log_every_steps": 1}
MODEL = {"width": 16, "layers": 1, "heads": 2, "learning_rate": 0.02}
WAITING_TRAINER = """
import time

def main(session):
    for batch in session.batches():
        session.report(session.step, 0.0)
        if session.identity.host_rank == 1 and "fail" in session.args:
            raise KeyError("mine")
        if not session.should_stop:
            time.sleep(1)
"""


class Containers:
    """Hosts of a job, each a container of the image with the rights that the launcher's pods have."""

    def __init__(self, root: Path, variables: dict[str, str], directory: Path) -> None:
        self.root = root
        self.variables = variables
        self.directory = directory
        self.running: list[subprocess.Popen[str]] = []
        self.ids = [f"tpulaunch-test-{os.getpid()}-{rank}" for rank in range(HOSTS)]
        write_corpus(directory)
        (directory / "waiting.py").write_text(WAITING_TRAINER)

    def start(self, **sections: Any) -> list[subprocess.Popen[str]]:
        document = document_over(self.directory, worker={"backend": "torch_xla"}, slice={"count": HOSTS}, **sections)
        (self.directory / "job.yaml").write_text(json.dumps(document))
        shared = {wire.ENV_SPEC: str(self.directory / "job.yaml")}
        environments = host_environments(load_job(json.dumps(document)), self.variables, shared, self.directory)
        subprocess.run(["chown", "-R", "1000:1000", str(self.directory)], check=True)
        self.running = [self._start(name, each) for name, each in zip(self.ids, environments, strict=True)]
        return self.running

    def _start(self, name: str, variables: dict[str, str]) -> subprocess.Popen[str]:
        bundle = self.directory / name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._configuration(variables)))
        command = ["runc", "--root", str(self.directory / "runc"), "run", "--bundle", str(bundle), name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _configuration(self, variables: dict[str, str]) -> dict[str, Any]:
        here = str(self.directory)
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 1000, "gid": 1000},
                "args": ["tpuworker"],
                "env": [f"{key}={value}" for key, value in variables.items()],
                "cwd": here,
                "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.root), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
                {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777"]},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
                {"destination": here, "type": "bind", "source": here, "options": ["rbind", "rw"]},
            ],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
        }

    def signal(self, rank: int, name: str) -> None:
        subprocess.run(["runc", "--root", str(self.directory / "runc"), "kill", self.ids[rank], name], check=True)

    def remove(self) -> None:
        for name in self.ids:
            command = ["runc", "--root", str(self.directory / "runc"), "delete", "--force", name]
            subprocess.run(command, check=False, capture_output=True)
        for host in self.running:
            host.communicate()


@pytest.fixture(scope="module")
def archive() -> Path:
    return images.archive_of("torch-xla")


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("image")
    with tarfile.open(archive) as content:
        (image,) = json.load(content.extractfile("manifest.json"))  # type: ignore[arg-type] # the builder wrote it
        for layer in image["Layers"]:
            with tarfile.open(fileobj=content.extractfile(layer)) as files:
                files.extractall(place, numeric_owner=True, filter="fully_trusted")
    place.chmod(0o755)  # the container's "/"
    yield place
    shutil.rmtree(place)


@pytest.fixture
def containers(archive: Path, root: Path, tmp_path: Path) -> Iterator[Containers]:
    given = images.configuration_of(archive)["config"]["Env"]
    containers = Containers(root, dict(each.split("=", 1) for each in given), tmp_path)
    yield containers
    containers.remove()


def ends(outputs: list[str]) -> list[dict[str, Any]]:
    return [record for output in outputs for record in records(output, "end")]


def records(output: str, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [record for record in found if record.get("event") == event]


def test_two_hosts_meet_prove_the_data_and_learn(containers: Containers) -> None:
    hosts = containers.start(data={"epochs": 2}, train={**TRAINING, "args": MODEL})
    outputs = [host.communicate(timeout=PATIENCE_SECONDS)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0] * HOSTS, outputs
    for output in outputs:
        (proof,) = records(output, "preflight")
        assert (proof["verdict"], proof["preflight"]["num_compiles"]) == ("passed", 1)
        losses = {record["step"]: record["loss"] for record in records(output, "progress")}
        assert losses[2 * STEPS_PER_EPOCH] < losses[1] - 0.3


def test_sigterm_to_one_container_stops_both_after_one_step_with_the_code_that_asks_for_a_restart(
    containers: Containers,
) -> None:
    hosts = containers.start(data={"epochs": 20}, train={"entrypoint": "waiting.main", "log_every_steps": 1})
    assert hosts[1].stdout is not None
    seen = next(line for line in hosts[1].stdout if '"event":"progress"' in line)
    containers.signal(1, "TERM")
    began = time.monotonic()
    outputs = [host.communicate(timeout=PATIENCE_SECONDS)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [42] * HOSTS, [seen, *outputs]
    assert time.monotonic() - began < 120
    assert len({end["step"] for end in ends(outputs)}) == 1
    assert sorted(end["message"].partition(", as ")[2] for end in ends(outputs)) == [
        "another host was asked (SIGTERM)",
        "asked (SIGTERM)",
    ]


def test_a_trainers_own_error_ends_both_containers_with_its_words_and_its_code(containers: Containers) -> None:
    hosts = containers.start(train={"entrypoint": "waiting.main", "args": {"fail": True}})
    outputs = [host.communicate(timeout=PATIENCE_SECONDS)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [1] * HOSTS, outputs
    assert [(end["reason"], end["failed_host"]) for end in ends(outputs)] == [("KeyError", "1/0")] * HOSTS
