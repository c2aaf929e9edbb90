"""Whatever way a cluster ends, nothing of it is left on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import add_ons, state
from tests.cluster.api import Api
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.errors import ClusterError
from tests.cluster.pools import v5e
from tests.cluster.state import State
from tests.cluster.workloads import container, pod

pytestmark = pytest.mark.cluster

ONE_NODE = [v5e("only")]


@pytest.fixture(autouse=True)
def _only_where_clusters_are_started_here(cluster: Cluster) -> None:
    cluster.require("node-control")


def _run_a_pod(api: Api, image: str) -> None:
    sleeper = container(image, "sleep 1000")
    api.create(pod("sleeper", sleeper, accelerator="tpu-v5-lite-podslice", topology="2x2"), "default")
    api.wait_for("Pod", "sleeper", "default", condition="Ready", timeout_seconds=90)


def test_taking_a_cluster_down_leaves_nothing() -> None:
    started = OwnCluster.up(ONE_NODE, with_add_ons=False)
    known = State.load(started.directory)
    _run_a_pod(started.api, started.busybox)
    assert state.leftovers(started.directory, known) != []
    started.down()
    assert state.leftovers(started.directory, known) == []


def test_a_killed_owner_takes_its_cluster_along_and_the_next_start_sweeps_up() -> None:
    script = (
        "import sys; from tests.cluster.cluster import OwnCluster; from tests.cluster.pools import v5e;"
        "print(OwnCluster.up([v5e('only')], with_add_ons=False).directory, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
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
    assert poll.poll(20_000), "the cluster outlived its owner by 20 s"
    os.close(handle)
