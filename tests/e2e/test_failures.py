"""What the failure policy does with each way a host can end, on real pods and nodes."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MORE_THAN_TWO_GIB, ONE_HOST, TWO_HOSTS, User, eventually

pytestmark = pytest.mark.cluster

#: Host 1 does what the test is about, once; host 0, and every later attempt, runs on until it is told to end.
FIRST_TIME_ON_HOST_1 = 'if [ "$JOB_COMPLETION_INDEX$TPULAUNCH_RESTART_ATTEMPT" = 10 ]; then %s; fi; %s'
WAIT = "sleep 1000"


def state(user: User) -> dict:  # type: ignore[type-arg]
    found: dict = user.types("status", "tiny", "-o", "json").data  # type: ignore[type-arg]
    return found


def is_running(found: dict) -> bool:  # type: ignore[type-arg]
    return bool(found["phase"] == "Running")


def counts(found: dict) -> tuple[int, int]:  # type: ignore[type-arg]
    return found["restarts"], found["restarts_counted"]


@pytest.mark.parametrize("code", [1, 3, 127])
def test_an_error_that_no_restart_can_cure_ends_the_job_at_once(user: User, code: int) -> None:
    printed = user.submits(FIRST_TIME_ON_HOST_1 % (f"exit {code}", WAIT), "--wait", slice=TWO_HOSTS)
    assert printed.code == 125
    found = state(user)
    assert (found["reason"], counts(found)) == ("FailJobSetFailurePolicyAction", (0, 0))
    assert f"exit code {code}" in found["cause"]["cause"] or code == 3
    assert "host 0/1" in found["cause"]["cause"]


def test_exit_42_restarts_and_counts_until_the_limit_ends_the_job(user: User) -> None:
    printed = user.submits("exit 42", "--wait", schedule={"restarts": 1})
    assert printed.code == 125
    found = state(user)
    assert (found["reason"], counts(found)) == ("ReachedMaxRestarts", (1, 1))


def test_a_restart_that_counts_is_seen_and_the_job_completes(user: User) -> None:
    printed = user.submits(
        FIRST_TIME_ON_HOST_1 % ("exit 42", "echo attempt $TPULAUNCH_RESTART_ATTEMPT"), "--follow", slice=TWO_HOSTS
    )
    assert printed.code == 0
    assert "-- attempt 1 starts" in printed.err
    assert printed.out.count("| attempt 1\n") == 2
    assert counts(state(user)) == (1, 1)


def test_an_eviction_restarts_and_does_not_count(user: User) -> None:
    user.submits(WAIT, slice=TWO_HOSTS)
    pod = eventually(lambda: state(user), is_running)["hosts"][1]["pod"]
    user.cluster.evict(pod, user.namespace)
    found = eventually(lambda: state(user), lambda s: s["restarts"] == 1 and is_running(s))
    assert counts(found) == (1, 0)


def test_out_of_memory_is_a_restart_that_counts(user: User) -> None:
    worker = {"memory_gib": 2, "shared_memory_gib": 1}
    user.submits(
        f'if [ "$TPULAUNCH_RESTART_ATTEMPT" = 0 ]; then {MORE_THAN_TWO_GIB}; fi; {WAIT}', slice=ONE_HOST, worker=worker
    )
    found = eventually(lambda: state(user), lambda s: s["restarts"] == 1 and is_running(s))
    assert counts(found) == (1, 1)


def test_a_deleted_node_restarts_and_does_not_count(user: User) -> None:
    user.cluster.require("node-control")
    user.submits(WAIT)
    node = eventually(lambda: state(user), is_running)["hosts"][0]["node"]
    user.cluster.kill_node(node)  # type: ignore[attr-defined]
    try:
        user.cluster.delete_node_object(node)  # type: ignore[attr-defined]
        found = eventually(lambda: state(user), lambda s: s["restarts"] >= 1)
        assert counts(found) == (1, 0)
    finally:
        user.cluster.restart_node(node)  # type: ignore[attr-defined]
    found = eventually(lambda: state(user), is_running)
    assert counts(found) == (1, 0)


def test_a_vanished_node_whose_peers_fail_first_costs_one_restart_and_not_the_job(user: User) -> None:
    """Peers of a dead host see a broken connection long before Kubernetes marks the lost pod, and end with 42.

    The Job is then failing for the peer's sake, which counts. It waits for the lost pod until the Node object goes, as
    it does on GKE when the machine is gone; status names the node meanwhile.
    """
    user.cluster.require("node-control")
    peer = "tiny-slice-0-1.tiny.$TPULAUNCH_POD_NAMESPACE.svc.cluster.local"
    find_peer = f"nslookup {peer} | awk '/^Address/ {{a = $NF}} END {{print a}}'"
    reach_peer = f"timeout 3 wget -q -O /dev/null http://$({find_peer}):8471/etc/passwd"
    watch_peer = f"until {reach_peer}; do sleep 1; done; echo met; while {reach_peer}; do sleep 1; done; exit 42"
    script = (
        f'[ "$JOB_COMPLETION_INDEX$TPULAUNCH_RESTART_ATTEMPT" = 00 ] && {{ {watch_peer}; }}; exec httpd -f -p 8471 -h /'
    )
    user.submits(script, slice=TWO_HOSTS)
    node = eventually(lambda: state(user), is_running)["hosts"][1]["node"]
    eventually(lambda: user.types("logs", "tiny", "--host", "0/0").out, lambda out: "met" in out)
    user.cluster.kill_node(node)  # type: ignore[attr-defined]
    try:
        found = eventually(lambda: state(user), lambda s: s["hosts"][0]["exit_code"] == 42)
        assert (found["phase"], counts(found)) == ("Starting", (0, 0))
        found = eventually(lambda: state(user), lambda s: s["cause"]["code"] == "node-lost")
        assert f"node {node} of host 0/1 is not ready" in found["cause"]["cause"]
        user.cluster.delete_node_object(node)  # type: ignore[attr-defined]
        found = eventually(lambda: state(user), lambda s: s["restarts"] >= 1)
        assert (found["phase"] != "Failed", counts(found)) == (True, (1, 1))
    finally:
        user.cluster.restart_node(node)  # type: ignore[attr-defined]
    assert counts(eventually(lambda: state(user), is_running)) == (1, 1)
