"""A user at a terminal: writes a spec, types commands, reads what they print."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.builders import job_document
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.patience import STALLED_SECONDS, Patience
from tests.e2e.script_worker import IMAGE, write_script_worker
from tests.e2e.workspace import Workspace, claim_of
from tests.session.builders import write_corpus
from tpulaunch.cli.main import main
from tpulaunch.cluster.api import Api
from tpulaunch.cluster.connection import connect
from tpulaunch.cluster.kubeconfig import Flags
from tpulaunch.cluster.logs import JobRef

T = TypeVar("T")
ONE_HOST = {"generation": "v5e", "topology": "2x2"}
TWO_HOSTS = {"generation": "v6e", "topology": "2x4", "machine": "ct6e-standard-4t"}
#: Fills /dev/shm, which counts as memory of the container, and then takes more than is left of it.
MORE_THAN_TWO_GIB = "dd if=/dev/zero of=/dev/shm/x bs=1M count=500; exec dd if=/dev/zero of=/dev/null bs=2000M count=1"
#: Both hosts of a slice run on one node: an image of more than a gigabyte is then unpacked twice and not four times.
NODES = ("v6e-a-0", "v6e-b-0")
CHIPS_OF_A_SLICE = 8


@dataclass(frozen=True)
class Printed:
    """What a command left: exit code, data, words."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class User:
    """Types commands against one namespace of the cluster."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, image: str = IMAGE) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.folder = folder
        self.image = image
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        if self._api is None:
            self._api = connect(Flags(kubeconfig=str(self.cluster.kubeconfig), context=self.cluster.context))
        return self._api

    def job(self, name: str = "tiny") -> JobRef:
        return JobRef(self.api, self.namespace, name)

    def write(self, script: str = "true", name: str = "tiny", **sections: Any) -> str:
        """Write a spec whose worker runs a shell script, and return its path."""
        worker = {"image": self.image, **sections.pop("worker", {})}
        train = sections.pop("train", {})
        env = {"SCRIPT": script, **train.pop("env", {})}
        document = job_document(
            metadata={"name": name, **sections.pop("metadata", {})},
            slice=sections.pop("slice", ONE_HOST),
            worker=worker,
            train={"env": env, **train},
            schedule={"grace_seconds": 1, **sections.pop("schedule", {})},
            **sections,
        )
        if "generation" in document["spec"]["slice"] and document["spec"]["slice"]["generation"] != "v6e":
            document["spec"]["slice"].pop("machine", None)
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        return str(path)

    def types(self, *arguments: str) -> Printed:
        """Run one command line as typed; cluster and namespace are added to it."""
        where = ("--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace)
        where += ("--context", self.cluster.context) if self.cluster.context else ()
        return run(*arguments, *where)

    def submits(self, script: str = "true", *flags: str, **sections: Any) -> Printed:
        printed = self.types("submit", self.write(script, **sections), *flags)
        assert printed.code in (0, 124, 125), printed
        return printed


def run(*arguments: str) -> Printed:
    """Run one command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return Printed(code, out.getvalue(), err.getvalue())


def eventually(look: Callable[[], T], is_right: Callable[[T], bool], stalled_seconds: float = STALLED_SECONDS) -> T:
    """Look until what is seen is right, and return it; fail with it when it stays as it is for too long."""
    patience = Patience(stalled_seconds)
    while True:
        seen = look()
        if is_right(seen):
            return seen
        patience.note(seen)
        assert patience.remaining_seconds, f"{patience.words}; last seen: {seen}"
        time.sleep(0.3)


@pytest.fixture(scope="session")
def script_worker(cluster: Cluster) -> str:
    """The stand-in worker image on every node. Its archive lies with the cluster: nodes that boot later read it."""
    cluster.require("jobset", "tpu-nodes")
    if not cluster.is_own and (given := os.environ.get("TPULAUNCH_TEST_SCRIPT_WORKER")):
        return given
    cluster.require("load-image")
    cluster.load_image(write_script_worker(cluster.kubeconfig.parent / "script-worker.tar"))
    return IMAGE


@pytest.fixture
def user(cluster: Cluster, namespace: str, script_worker: str, tmp_path: Path) -> User:
    return User(cluster, namespace, tmp_path, script_worker)


@contextlib.contextmanager
def image_on(cluster: Cluster, backend: str, nodes: Sequence[str]) -> Iterator[str]:
    """The worker image on some nodes, which have the chips of a whole slice each; those of their pools have none."""
    cluster.require("jobset", "tpu-nodes", "node-control", "load-image")
    assert isinstance(cluster, OwnCluster)
    name = cluster.build_image(backend, nodes)
    idle = [each for each in ("v6e-a-0", "v6e-a-1", "v6e-b-0", "v6e-b-1") if each not in nodes]
    for node in nodes:
        cluster.set_chips(node, CHIPS_OF_A_SLICE)
    for node in idle:
        cluster.set_chips(node, 0)
    try:
        yield name
    finally:
        for node in (*nodes, *idle):
            cluster.set_chips(node, 4)


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Iterator[str]:
    with image_on(cluster, "jax", NODES) as name:
        yield name


@pytest.fixture
def workspace(cluster: Cluster, namespace: str, image: str, tmp_path: Path) -> Iterator[Workspace]:
    """A corpus that every pod sees."""
    directory = corpus_in(tmp_path / "workspace")
    with claim_of(cluster, namespace, directory) as claim:
        yield Workspace(User(cluster, namespace, tmp_path), image, directory, claim)


def corpus_in(directory: Path) -> Path:
    """Make a directory with the corpus that user 1000 may write to."""
    directory.mkdir()
    directory.chmod(0o777)
    write_corpus(directory)
    return directory
