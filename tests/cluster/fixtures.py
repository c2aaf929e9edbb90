"""pytest fixtures: the session's cluster, and a namespace and a queue per test; what failed is kept as files.

`TPULAUNCH_TEST_KUBECONFIG`, or else `KUBECONFIG`, names a cluster to use instead of one started here. The kubeconfig
of a cluster that `python -m tests.cluster up` started gives full control over its nodes, as if the session had
started it. `TPULAUNCH_TEST_LOGS` names the directory for what is kept of failures.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster, GivenCluster, OwnCluster
from tests.cluster.errors import ClusterError, UnfitHostError
from tests.cluster.kueue import OWNER_LABEL

_failed = pytest.StashKey[bool]()
_kept = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of this session, started on first use and removed at the end."""
    given = os.environ.get("TPULAUNCH_TEST_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if given:
        yield _given(Path(given))
        return
    try:
        started = OwnCluster.up(keep_logs_in=_logs(request.config))
    except UnfitHostError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield started
    finally:
        if request.session.testsfailed:
            started.keep_logs(_logs(request.config))
        started.down()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace; its pods are gone when the next test starts, so that chips are free again."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    name = f"{slug}-{secrets.token_hex(3)}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # The account's token is mounted into pods; one that comes first is refused.
    cluster.wait_for("ServiceAccount", "default", name, until=lambda _: True)
    try:
        yield name
    finally:
        if request.node.stash.get(_failed, False):
            cluster.dump(name, _logs(request.config) / "tests" / name)
        _clear(cluster, name)


@pytest.fixture
def queue(cluster: Cluster, namespace: str) -> str:
    """A Kueue LocalQueue named `tpu` in the namespace, with room for everything the nodes have."""
    cluster.require("kueue")
    return cluster.make_queue(namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes a failed test, so that its namespace is kept as files."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says where the files of failures are."""
    kept = config.stash.get(_kept, None)
    if kept is None or not kept.is_dir():
        return
    if any(kept.iterdir()):
        terminalreporter.write_line(f"cluster logs of failed tests: {kept}")
    else:
        kept.rmdir()


def _given(kubeconfig: Path) -> Cluster:
    if not kubeconfig.is_file():
        raise ClusterError(f"{kubeconfig} (from TPULAUNCH_TEST_KUBECONFIG or KUBECONFIG) is no file")
    if (kubeconfig.parent / "state.json").exists():
        return OwnCluster.attach(kubeconfig.parent)
    return GivenCluster(kubeconfig, None)


def _logs(config: pytest.Config) -> Path:
    if _kept not in config.stash:
        chosen = os.environ.get("TPULAUNCH_TEST_LOGS")
        path = Path(chosen) if chosen else Path(tempfile.mkdtemp(prefix="tpulaunch-logs-"))
        path.mkdir(parents=True, exist_ok=True)
        config.stash[_kept] = path
    return config.stash[_kept]


def _clear(cluster: Cluster, namespace: str) -> None:
    for kind in ("JobSet", "Job"):
        try:
            found = cluster.list(kind, namespace)
        except ApiError:  # the kind is not served
            continue
        for each in found:
            cluster.delete(kind, each["metadata"]["name"], namespace)
    while pods := cluster.list("Pod", namespace):  # a controller may make one more before it is gone
        for pod in pods:
            node = pod["spec"].get("nodeName")
            grace_seconds = 1 if node and cluster.can_confirm(node) else 0
            cluster.delete("Pod", pod["metadata"]["name"], namespace, grace_seconds=grace_seconds)
        for pod in pods:
            cluster.wait_for("Pod", pod["metadata"]["name"], namespace, gone=True)
    cluster.delete("Namespace", namespace)
    if cluster.lacks("kueue") is None:
        for each in cluster.list("ClusterQueue", labels=f"{OWNER_LABEL}={namespace}"):
            cluster.delete("ClusterQueue", each["metadata"]["name"])
