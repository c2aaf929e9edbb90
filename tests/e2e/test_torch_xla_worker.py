"""The worker image for PyTorch/XLA as a JobSet: two hosts meet by name, prove the data, train and complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.patience import LIMIT_SECONDS
from tests.e2e.conftest import User, corpus_in, image_on
from tests.e2e.workspace import Workspace, claim_of

pytestmark = [pytest.mark.cluster, pytest.mark.release]


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> Iterator[str]:
    with image_on(cluster, "torch-xla", ["v6e-a-0"]) as name:
        yield name


@pytest.fixture
def workspace(cluster: Cluster, namespace: str, image: str, tmp_path: Path) -> Iterator[Workspace]:
    directory = corpus_in(tmp_path / "workspace")
    with claim_of(cluster, namespace, directory) as claim:
        yield Workspace(User(cluster, namespace, tmp_path), image, directory, claim, "torch_xla", num_slices=1)


def test_two_hosts_of_a_slice_meet_pass_preflight_train_and_complete(workspace: Workspace) -> None:
    printed = workspace.submits("--follow", f"--timeout={LIMIT_SECONDS:.0f}s")
    assert printed.code == 0, printed
    proofs = workspace.records("preflight")
    assert list(proofs) == ["0/0", "0/1"]
    for (record,) in proofs.values():
        proof = record["preflight"]
        assert (proof["num_hosts"], proof["num_devices"]) == (2, 8)
        assert (proof["verdict"], proof["num_compiles"]) == ("passed", 1)
    assert len({record["preflight"]["data_hash"] for (record,) in proofs.values()}) == 1
    for records in workspace.records("progress").values():
        assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
        assert records[-1]["loss"] < records[0]["loss"] - 0.1  # of the host's own rows, where there is no TPU
    found = workspace.state()
    assert (found["phase"], found["restarts"], found["cause"]) == ("Completed", 0, None)
    for host in found["hosts"]:
        assert (host["exit_code"], host["progress"]["verdict"], host["progress"]["step"]) == (0, "passed", 6)
