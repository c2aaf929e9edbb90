"""The project's own worker image as a JobSet: hosts meet by name, prove the data, train, stop and go on, or refuse."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders import job_document
from tests.cluster.api import Object
from tests.cluster.cluster import Cluster, OwnCluster
from tests.e2e.conftest import TWO_HOSTS, Printed, User, eventually
from tests.session.builders import write_corpus

pytestmark = pytest.mark.cluster

FOUR_HOSTS = {**TWO_HOSTS, "count": 2}
HOSTS = ("0/0", "0/1", "1/0", "1/1")
#: Both hosts of a slice run on one node: an image of more than a gigabyte is then unpacked twice and not four times.
NODES = ("v6e-a-0", "v6e-b-0")
IDLE_NODES = ("v6e-a-1", "v6e-b-1")
#: Four workers import and compile on a few cores, perhaps beside other work.
PATIENCE_SECONDS = 400.0
#: Where pods see the corpus, the trainer and the checkpoints. The image imports training code from its /workspace.
WORKSPACE = "/workspace"
STEPS = 48

#: Writes the rows of every step as this host sees them. The first attempt is slow enough to be interrupted.
TRAINER = """
import json, time

def main(session):
    place = f"rows-{session.identity.restart_attempt}-{session.identity.host_rank}.jsonl"
    with open(place, "a", buffering=1) as rows:
        for batch in session.batches():
            ids = session.backend.local_rows(batch)["input_ids"]
            rows.write(json.dumps({"step": session.step, "rows": ids.tolist()}) + "\\n")
            session.report(session.step, float(ids.sum()))
            if session.identity.restart_attempt == 0 and not session.should_stop:
                time.sleep(1)
"""


@dataclass(frozen=True)
class Workspace:
    """A claim that every pod mounts, and the directory of this machine behind it."""

    user: User
    image: str
    directory: Path
    claim: str

    def submits(self, *flags: str, **sections: Any) -> Printed:
        """Submit a job of four hosts over the corpus of the claim, as short as a job can be."""
        train = {
            "entrypoint": "tpuworker.training.jax_lm.main",
            "args": {"width": 32, "layers": 1, "heads": 2},
            "steps": 6,
            "log_every_steps": 1,
            "env": {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        }
        document = job_document(
            slice=FOUR_HOSTS,
            worker={
                "image": self.image,
                "volumes": [{"name": "workspace", "mount_path": WORKSPACE, "pvc": {"claim": self.claim}}],
            },
            data={
                "sources": [{"files": f"{WORKSPACE}/part-*.parquet"}],
                "tokenizer": {"path": f"{WORKSPACE}/tokenizer.json", "eos_token": "<end>", "pad_token": "<pad>"},
                "max_length": 32,
                "global_batch_size": 16,
                "epochs": 8,
            },
            preflight={"batches": 4},
            train=train | sections.pop("train", {}),
            **sections,
        )
        path = self.user.folder / "tiny.yaml"
        path.write_text(json.dumps(document))
        return self.user.types("submit", str(path), *flags)

    def state(self) -> Any:
        return self.user.types("status", "tiny", "-o", "json").data

    def records(self, event: str) -> dict[str, list[dict[str, Any]]]:
        """Return the log lines of an event by host. What native libraries print beside them is left out."""
        found: dict[str, list[dict[str, Any]]] = {host: [] for host in HOSTS}
        for line in self.user.types("logs", "tiny").out.splitlines():
            host, _, text = line.partition(" | ")
            if text.startswith("{") and (record := json.loads(text)).get("event") == event:
                found[host].append(record)
        return found

    def rows(self, attempt: int) -> dict[int, list[list[int]]]:
        """Return the global batch of every step of an attempt, joined from what its hosts saw."""
        found: dict[int, list[list[int]]] = {}
        for rank in range(len(HOSTS)):
            place = self.directory / f"rows-{attempt}-{rank}.jsonl"
            for line in place.read_text().splitlines() if place.exists() else ():
                record = json.loads(line)
                found.setdefault(record["step"], []).extend(record["rows"])
        return found


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Iterator[str]:
    cluster.require("jobset", "tpu-nodes", "node-control", "load-image")
    assert isinstance(cluster, OwnCluster)
    name = cluster.build_image("jax", NODES)
    for node in NODES:
        cluster.set_chips(node, 8)
    for node in IDLE_NODES:
        cluster.set_chips(node, 0)
    try:
        yield name
    finally:
        for node in NODES + IDLE_NODES:
            cluster.set_chips(node, 4)


@pytest.fixture
def workspace(cluster: Cluster, namespace: str, image: str, tmp_path: Path) -> Iterator[Workspace]:
    directory = tmp_path / "workspace"
    directory.mkdir()
    directory.chmod(0o777)  # the worker is user 1000
    write_corpus(directory)
    with claim_of(cluster, namespace, directory) as claim:
        yield Workspace(User(cluster, namespace, tmp_path), image, directory, claim)


@contextlib.contextmanager
def claim_of(cluster: Cluster, namespace: str, directory: Path) -> Iterator[str]:
    """A claim bound to a directory that every node has; what is a shared file system elsewhere is this machine's."""
    name = f"workspace-{secrets.token_hex(3)}"
    common: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = common | {
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(directory), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    claim = common | {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume})
    cluster.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim}, namespace
    )
    try:
        yield name
    finally:
        cluster.delete("PersistentVolume", name)


def test_four_hosts_of_two_slices_meet_pass_preflight_train_and_complete(workspace: Workspace) -> None:
    printed = workspace.submits("--follow", f"--timeout={PATIENCE_SECONDS:.0f}s")
    assert printed.code == 0, printed
    proofs = workspace.records("preflight")
    assert list(proofs) == list(HOSTS)
    for (record,) in proofs.values():
        proof = record["preflight"]
        assert (proof["num_hosts"], proof["num_devices"], proof["num_compiles"]) == (4, 16, 1)
    assert len({record["preflight"]["data_hash"] for (record,) in proofs.values()}) == 1
    for records in workspace.records("progress").values():
        assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record["exit_code"] for (record,) in workspace.records("end").values()] == [0] * 4
    found = workspace.state()
    assert (found["phase"], found["restarts"], found["cause"]) == ("Completed", 0, None)
    for host in found["hosts"]:
        assert (host["exit_code"], host["progress"]["verdict"], host["progress"]["step"]) == (0, "passed", 6)
    table = workspace.user.types("status", "tiny").out
    assert table.count("passed") == 4
    assert "Completed" in table


def test_an_evicted_host_stops_all_at_one_step_and_the_restart_goes_on_with_no_row_lost_or_repeated(
    workspace: Workspace,
) -> None:
    (workspace.directory / "trainer.py").write_text(TRAINER)
    job: dict[str, Any] = {
        "train": {"entrypoint": "trainer.main", "steps": STEPS},
        "checkpoint": {"dir": f"{WORKSPACE}/checkpoints"},
    }
    assert workspace.submits(**job).code == 0
    eventually(lambda: workspace.rows(0), lambda rows: 3 in rows, PATIENCE_SECONDS)
    pod = workspace.state()["hosts"][3]["pod"]
    workspace.user.cluster.evict(pod, workspace.user.namespace)
    found = eventually(workspace.state, lambda state: state["phase"] in ("Completed", "Failed"), PATIENCE_SECONDS)
    assert found["phase"] == "Completed", found
    assert (found["restarts"], found["restarts_counted"]) == (1, 0)
    first, second = workspace.rows(0), workspace.rows(1)
    assert sorted([*first, *second]) == list(range(1, STEPS + 1))
    assert (workspace.directory / f"checkpoints/cursor-{max(first):010d}.json").is_file()
    assert {len(rows) for rows in (first | second).values()} == {16}


def test_a_slice_with_other_code_is_refused_before_a_step_and_named_and_the_job_ends_at_once(
    workspace: Workspace,
) -> None:
    for slice_index in (0, 1):
        (workspace.directory / f"own_{slice_index}.py").write_text(f"x = {slice_index}\n")
    (workspace.directory / "trainer.py").write_text(
        "import importlib, os\nimportlib.import_module('own_' + os.environ['TPULAUNCH_SLICE_INDEX'])\n"
        "def main(session): raise AssertionError('trained')\n"
    )
    printed = workspace.submits("--wait", f"--timeout={PATIENCE_SECONDS:.0f}s", train={"entrypoint": "trainer.main"})
    assert printed.code == 125, printed
    found = workspace.state()
    assert (found["phase"], found["restarts"]) == ("Failed", 0)
    assert 3 in {host["exit_code"] for host in found["hosts"]}
    assert "your code" in found["cause"]["cause"], found["cause"]
    assert "on host 1/0" in found["cause"]["cause"], found["cause"]
