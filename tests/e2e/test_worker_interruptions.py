"""The worker image is stopped in the middle: evicted, asked to end, or its node vanishes; the job goes on by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.cluster.cluster import OwnCluster
from tests.cluster.patience import SILENT_WORKER_SECONDS
from tests.e2e.conftest import CHIPS_OF_A_SLICE, eventually
from tests.e2e.workspace import WORKSPACE, Workspace

pytestmark = pytest.mark.cluster

BATCH = 16
STEPS = 48
#: 130 documents give 8 whole batches; the remainder is dropped.
STEPS_PER_EPOCH = 8

#: Writes the rows of every step as this host sees them. The first attempt is slow enough to be interrupted.
TRAINER = """
import json, time

def main(session):
    place = f"rows-{session.identity.restart_attempt}-{session.identity.host_rank}.jsonl"
    with open(place, "a", buffering=1) as rows:
        for batch in session.batches():
            arrays = session.backend.local_rows(batch)
            ids = [row[mask > 0].tolist() for row, mask in zip(arrays["input_ids"], arrays["attention_mask"])]
            rows.write(json.dumps({"step": session.step, "rows": ids}) + "\\n")
            session.report(session.step, float(session.step))
            if session.identity.restart_attempt == 0 and not session.should_stop:
                time.sleep(1)
"""


def _job(workspace: Workspace) -> dict[str, Any]:
    (workspace.directory / "trainer.py").write_text(TRAINER)
    return {
        "train": {"entrypoint": "trainer.main", "steps": STEPS},
        "checkpoint": {"dir": f"{WORKSPACE}/checkpoints"},
    }


def _until_it_trains(workspace: Workspace) -> None:
    eventually(lambda: workspace.rows(0), lambda rows: 3 in rows, SILENT_WORKER_SECONDS)


def _end(workspace: Workspace) -> Any:
    ended = ("Completed", "Failed")
    found = eventually(workspace.state, lambda state: state["phase"] in ended, SILENT_WORKER_SECONDS)
    assert found["phase"] == "Completed", found
    return found


def _is_each_row_delivered_once(workspace: Workspace) -> None:
    """Hold the rows of both attempts together against the corpus: an epoch gives a document once, or drops it."""
    first, second = workspace.rows(0), workspace.rows(1)
    assert first.keys().isdisjoint(second)
    steps = first | second
    assert sorted(steps) == list(range(1, STEPS + 1))
    corpus = workspace.corpus()
    assert len(corpus) == 130
    orders = set()
    for start in range(1, STEPS + 1, STEPS_PER_EPOCH):
        delivered = [tuple(row) for step in range(start, start + STEPS_PER_EPOCH) for row in steps[step]]
        assert len(delivered) == BATCH * STEPS_PER_EPOCH
        assert [row for row, times in Counter(delivered).items() if times > 1] == []
        assert set(delivered) <= corpus
        orders.add(tuple(delivered))
    assert len(orders) == STEPS // STEPS_PER_EPOCH  # each epoch has an order of its own
    # The second attempt began where the first ended, in the middle of the run.
    assert (workspace.directory / f"checkpoints/cursor-{max(first):010d}.json").is_file()
    assert 3 <= max(first) < min(second) < STEPS


def test_an_evicted_host_stops_all_at_one_step_and_every_row_is_delivered_once_at_no_cost(workspace: Workspace) -> None:
    assert workspace.submits(**_job(workspace)).code == 0
    _until_it_trains(workspace)
    workspace.user.cluster.evict(workspace.state()["hosts"][3]["pod"], workspace.user.namespace)
    found = _end(workspace)
    assert (found["restarts"], found["restarts_counted"]) == (1, 0)
    _is_each_row_delivered_once(workspace)


def test_a_host_that_gets_sigterm_stops_all_at_one_step_and_every_row_is_delivered_once(workspace: Workspace) -> None:
    assert workspace.submits(**_job(workspace)).code == 0
    _until_it_trains(workspace)
    host = workspace.state()["hosts"][2]
    cluster = workspace.user.cluster
    assert isinstance(cluster, OwnCluster)
    cluster.signal(host["pod"], workspace.user.namespace, "TERM")
    found = _end(workspace)
    assert (found["restarts"], found["restarts_counted"]) == (1, 1)
    _is_each_row_delivered_once(workspace)


@pytest.mark.parametrize(
    "rank", [pytest.param(0, id="the coordinator's"), pytest.param(3, id="another", marks=pytest.mark.release)]
)
def test_when_a_node_vanishes_its_peers_ask_for_a_restart_and_the_job_goes_on(workspace: Workspace, rank: int) -> None:
    """Peers notice a lost host before or after Kubernetes does; neither order may fail the job."""
    cluster = workspace.user.cluster
    assert isinstance(cluster, OwnCluster)
    with workspace.follows(**_job(workspace)) as terminal:
        _until_it_trains(workspace)
        hosts = workspace.state()["hosts"]
        node = hosts[rank]["node"]
        peers = [host["host"] for host in hosts if host["node"] != node]
        assert len(peers) == 2
        cluster.kill_node(node)
        try:
            ends = eventually(
                lambda: workspace.records("end", workspace.followed()),
                lambda records: all(records[peer] for peer in peers),
                SILENT_WORKER_SECONDS,
            )
            assert [ends[peer][0]["exit_code"] for peer in peers] == [42, 42], ends
            cluster.delete_node_object(node)
            found = eventually(workspace.state, lambda state: state["restarts"] >= 1)
            assert found["phase"] != "Failed", found
        finally:
            cluster.restart_node(node)
            cluster.set_chips(node, CHIPS_OF_A_SLICE)
        found = _end(workspace)
        assert (found["restarts"], found["restarts_counted"]) in {(1, 0), (1, 1)}
        assert terminal.wait(SILENT_WORKER_SECONDS) == 0
