"""The project's own worker image as a JobSet: hosts meet by name, prove the data, train and complete, or refuse."""

from __future__ import annotations

import pytest

from tests.cluster.patience import LIMIT_SECONDS
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.cluster

LIMIT = f"--timeout={LIMIT_SECONDS:.0f}s"
#: Training code that differs between the slices.
TWO_VERSIONS = """
import importlib, os
importlib.import_module("own_" + os.environ["TPULAUNCH_SLICE_INDEX"])

def main(session):
    raise AssertionError("trained")
"""


def test_four_hosts_of_two_slices_meet_pass_preflight_train_and_complete(workspace: Workspace) -> None:
    printed = workspace.submits("--follow", LIMIT)
    assert printed.code == 0, printed
    proofs = workspace.records("preflight")
    assert list(proofs) == workspace.hosts
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


def _write_two_versions(workspace: Workspace) -> None:
    for slice_index in (0, 1):
        (workspace.directory / f"own_{slice_index}.py").write_text(f"x = {slice_index}\n")
    (workspace.directory / "trainer.py").write_text(TWO_VERSIONS)


def test_a_slice_with_other_code_is_refused_before_a_step_and_named_and_the_job_ends_at_once(
    workspace: Workspace,
) -> None:
    _write_two_versions(workspace)
    printed = workspace.submits("--wait", LIMIT, train={"entrypoint": "trainer.main"})
    assert printed.code == 125, printed
    found = workspace.state()
    assert (found["phase"], found["restarts"]) == ("Failed", 0)
    assert 3 in {host["exit_code"] for host in found["hosts"]}
    assert "your code" in found["cause"]["cause"], found["cause"]
    assert "preflight refused the job on host 1/0" in found["cause"]["cause"], found["cause"]


def test_the_proof_alone_passes_on_the_slice_and_trains_nothing(workspace: Workspace) -> None:
    printed = workspace.user.types("preflight", workspace.write(), "--submit", LIMIT)
    assert printed.code == 0, printed
    assert "jobset.jobset.x-k8s.io/tiny-preflight created" in printed.err
    proofs = workspace.records("preflight", printed.out)
    assert [record["preflight"]["verdict"] for (record,) in proofs.values()] == ["passed"] * 4
    assert workspace.records("progress", printed.out) == {host: [] for host in workspace.hosts}
    for (record,) in workspace.records("end", printed.out).values():
        assert record["message"] == "preflight passed: nothing was trained, as asked"
    assert workspace.user.types("status", "tiny").code == 3  # the job itself was not submitted


def test_the_proof_alone_refuses_a_bad_job_and_names_host_and_value(workspace: Workspace) -> None:
    _write_two_versions(workspace)
    path = workspace.write(train={"entrypoint": "trainer.main"})
    printed = workspace.user.types("preflight", path, "--submit", LIMIT)
    assert printed.code == 125, printed
    assert "preflight refused the job on host 1/0" in printed.err
    assert "your code" in printed.err
    assert "AssertionError" not in printed.out
