"""A claim that every pod of a job mounts: corpus, trainer and checkpoints lie there, and what hosts write."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.builders import job_document
from tests.cluster.api import Object
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from tests.e2e.conftest import Printed, User

_SLICE = {"generation": "v6e", "topology": "2x4", "machine": "ct6e-standard-4t"}
HOSTS_PER_SLICE = 2
DEVICES_PER_HOST = 4
#: How each backend is told that a CPU is so many devices.
_DEVICES = {
    "jax": {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES_PER_HOST}"},
    "torch_xla": {"CPU_NUM_DEVICES": str(DEVICES_PER_HOST)},
}
#: Where pods see it. The image imports training code from its /workspace.
WORKSPACE = "/workspace"


@dataclass(frozen=True)
class Workspace:
    """The claim, and the directory of this machine behind it."""

    user: User
    image: str
    directory: Path
    claim: str
    backend: str = "jax"
    num_slices: int = 2

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts by rank."""
        return [f"{index}/{host}" for index in range(self.num_slices) for host in range(HOSTS_PER_SLICE)]

    def write(self, **sections: Any) -> str:
        """Write the spec of a job over the corpus, as short as a job can be, and return its path."""
        train = {
            "entrypoint": f"tpuworker.training.{self.backend}_lm.main",
            "args": {"width": 32, "layers": 1, "heads": 2},
            "steps": 6,
            "log_every_steps": 1,
            "env": _DEVICES[self.backend],
        }
        document = job_document(
            slice={**_SLICE, "count": self.num_slices},
            worker={
                "backend": self.backend,
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
        return str(path)

    def submits(self, *flags: str, **sections: Any) -> Printed:
        """Submit such a job."""
        return self.user.types("submit", self.write(**sections), *flags)

    @contextlib.contextmanager
    def follows(self, *flags: str, **sections: Any) -> Iterator[subprocess.Popen[str]]:
        """Submit such a job in a terminal of its own, which follows its logs meanwhile."""
        cluster = self.user.cluster
        where = ["--kubeconfig", str(cluster.kubeconfig), "-n", self.user.namespace]
        where += ["--context", cluster.context] if cluster.context else []
        command = [sys.executable, "-m", "tpulaunch", "submit", self.write(**sections), "--follow", *flags, *where]
        with (
            (self.user.folder / "followed").open("w") as out,
            subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()

    def followed(self) -> str:
        """Return what the other terminal shows."""
        return (self.user.folder / "followed").read_text()

    def state(self) -> Any:
        return self.user.types("status", "tiny", "-o", "json").data

    def records(self, event: str, text: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the log lines of an event by host. What native libraries print beside them is left out."""
        found: dict[str, list[dict[str, Any]]] = {host: [] for host in self.hosts}
        for line in (self.user.types("logs", "tiny").out if text is None else text).splitlines():
            host, _, words = line.partition(" | ")
            if words.startswith("{") and (record := json.loads(words)).get("event") == event:
                found[host.strip()].append(record)
        return found

    def rows(self, attempt: int) -> dict[int, list[list[int]]]:
        """Return the global batch of every step of an attempt, joined from what its hosts saw."""
        found: dict[int, list[list[int]]] = {}
        for rank in range(len(self.hosts)):
            place = self.directory / f"rows-{attempt}-{rank}.jsonl"
            for line in place.read_text().splitlines() if place.exists() else ():
                record = json.loads(line)
                found.setdefault(record["step"], []).extend(record["rows"])
        return found

    def corpus(self) -> set[tuple[int, ...]]:
        """Return the ids of every document, found without the worker: words by the tokenizer's table, and an end."""
        import pyarrow.parquet as pq

        table = json.loads((self.directory / "tokenizer.json").read_text())["model"]["vocab"]
        texts = [text for part in self.directory.glob("part-*.parquet") for text in pq.read_table(part)["text"]]
        return {(*(table[word] for word in str(text).split()), table["<end>"]) for text in texts}


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
