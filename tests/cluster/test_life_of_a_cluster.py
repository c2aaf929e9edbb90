"""Whatever way a cluster ends, nothing of it is left on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import add_ons, cgroups, state
from tests.cluster.api import Api
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.errors import ClusterError
from tests.cluster.patience import END_SECONDS, STALLED_SECONDS, Patience
from tests.cluster.pools import v5e
from tests.cluster.state import State
from tests.cluster.workloads import container, pod

pytestmark = pytest.mark.cluster

PROJECT = Path(__file__).parents[2]
ONE_NODE = [v5e("only")]
#: A conftest.py with which the session's cluster is Kubernetes alone, with one node.
SMALL_CLUSTER = """
import functools
from tests.cluster.cluster import OwnCluster
from tests.cluster.pools import v5e

OwnCluster.up = functools.partial(OwnCluster.up, [v5e("only")], with_add_ons=False)
"""


@pytest.fixture(autouse=True)
def _only_where_clusters_are_started_here(cluster: Cluster) -> None:
    cluster.require("node-control")


def _run_a_pod(api: Api, image: str) -> None:
    sleeper = container(image, "sleep 1000")
    api.create(pod("sleeper", sleeper, accelerator="tpu-v5-lite-podslice", topology="2x2"), "default")
    api.wait_for("Pod", "sleeper", "default", condition="Ready")


def test_taking_a_cluster_down_leaves_nothing() -> None:
    started = OwnCluster.up(ONE_NODE, with_add_ons=False)
    known = State.load(started.directory)
    _run_a_pod(started.api, started.busybox)
    containers = cgroups.containers_of(started.directory / "nodes" / "only-0")
    assert len(containers) == 2  # the pod's sandbox is one
    assert cgroups.find_containers(containers) != []
    assert state.leftovers(started.directory, known) != []
    started.down()
    assert state.leftovers(started.directory, known) == []
    assert cgroups.find_containers(containers) == []


def test_a_killed_owner_takes_its_cluster_along_and_the_next_start_sweeps_up() -> None:
    script = (
        "import sys; from tests.cluster.cluster import OwnCluster; from tests.cluster.pools import v5e;"
        "print(OwnCluster.up([v5e('only')], with_add_ons=False).directory, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT)
    assert owner.stdout is not None
    assert owner.stdin is not None
    directory = Path(owner.stdout.readline().decode().strip())
    known = State.load(directory)
    _run_a_pod(Api(directory / "kubeconfig"), OwnCluster.busybox)
    handle = os.pidfd_open(known.machine.init_pid)
    owner.send_signal(signal.SIGKILL)
    with owner:
        owner.stdin.close()
    _wait_for_the_end(handle)
    assert directory in state.sweep()
    assert state.leftovers(directory, known) == []


@pytest.mark.parametrize(
    ("ending", "exit_code"), [("assert False", 1), ("time.sleep(1000)", 2)], ids=["failed", "Ctrl-C"]
)
def test_a_session_that_fails_or_is_interrupted_leaves_nothing_but_the_logs_of_a_failure(
    tmp_path: Path, ending: str, exit_code: int
) -> None:
    told, logs = tmp_path / "directory", tmp_path / "logs"
    (tmp_path / "conftest.py").write_text(SMALL_CLUSTER)
    (tmp_path / "test_one.py").write_text(
        "import time\nfrom pathlib import Path\n"
        f"def test_one(cluster):\n    Path({str(told)!r}).write_text(str(cluster.directory))\n    {ending}\n"
    )
    own = {key: value for key, value in os.environ.items() if not key.endswith("KUBECONFIG")}
    environment = own | {"PYTHONPATH": str(PROJECT), "TPULAUNCH_TEST_LOGS": str(logs)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.cluster.fixtures",
        f"--rootdir={tmp_path}",
        "test_one.py",
    ]
    before = set(state.directories())
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as session:
        try:
            patience = Patience()
            while not (told.exists() and told.read_text()):
                assert session.poll() is None
                assert patience.remaining_seconds
                time.sleep(0.1)
            directory = Path(told.read_text())
            known = State.load(directory)
            if exit_code == 2:
                session.send_signal(signal.SIGINT)
            assert session.wait(STALLED_SECONDS) == exit_code
        finally:
            session.kill()
    assert state.leftovers(directory, known) == []
    assert set(state.directories()) == before
    assert (logs / "kube-apiserver.log").exists() == (exit_code == 1)


def test_a_start_that_fails_leaves_its_logs_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ClusterError("no add-on today")

    monkeypatch.setattr(add_ons, "install", broken)
    before = set(state.directories())
    with pytest.raises(ClusterError, match="no add-on today") as told:
        OwnCluster.up(ONE_NODE, keep_logs_in=tmp_path / "kept")
    assert str(tmp_path / "kept") in str(told.value)
    assert (tmp_path / "kept" / "kube-apiserver.log").exists()
    assert set(state.directories()) == before


def _wait_for_the_end(handle: int) -> None:
    import select

    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(END_SECONDS * 1000), f"the cluster outlived its owner by {END_SECONDS:g} s"
    os.close(handle)
