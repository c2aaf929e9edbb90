"""A job's state is read from what was observed: every host has its place, counted restarts stand apart."""

from __future__ import annotations

from tests.cluster_ops.builders import NOW, condition, make_jobset, make_pod, terminated
from tpulaunch.cli.state_view import HOST_HEADER, JOB_HEADER, as_data, host_row, job_row
from tpulaunch.cluster.conditions import HostPhase
from tpulaunch.cluster.progress import Progress, read_records, read_termination
from tpulaunch.cluster.state import Observation, job_state

PROGRESS = '{"severity":"INFO","event":"progress","message":"m","step":30,"num_steps":100,"steps_per_second":2.5}'
VERDICT = '{"severity":"INFO","event":"preflight","message":"fit","verdict":"passed","preflight":{"verdict":"passed"}}'
END = (
    '{"severity":"ERROR","event":"end","message":"host 1 has other files","reason":"PreflightError","exit_code":3,'
    '"preflight":{"verdict":"refused"}}'
)


def test_hosts_are_listed_by_rank_whether_they_have_a_pod_or_not() -> None:
    state = job_state(
        Observation(make_jobset(slices=2, hosts=2), pods=(make_pod(1, 0, conditions=(condition("Ready"),)),))
    )
    assert [(h.label, h.rank, h.phase) for h in state.hosts] == [
        ("0/0", 0, HostPhase.ABSENT),
        ("0/1", 1, HostPhase.ABSENT),
        ("1/0", 2, HostPhase.READY),
        ("1/1", 3, HostPhase.ABSENT),
    ]
    assert (state.hosts_ready, state.num_hosts) == (1, 4)


def test_the_pod_of_the_newest_attempt_stands_for_its_host() -> None:
    pods = (make_pod(0, 0, attempt=1), make_pod(0, 0, attempt=0), make_pod(0, 0, attempt=10, phase="Pending"))
    (host,) = job_state(Observation(make_jobset(slices=1, hosts=1), pods=pods)).hosts
    assert (host.attempt, host.phase) == (10, HostPhase.PENDING)


def test_restarts_that_count_are_told_from_those_that_do_not() -> None:
    state = job_state(Observation(make_jobset(restarts=5, restartsCountTowardsMax=2)))
    assert (state.restarts, state.restarts_counted, state.max_restarts) == (5, 2, 3)
    assert job_row(state, None, NOW)[JOB_HEADER.index("RESTARTS")] == "2/3+3"


def test_the_last_word_on_each_subject_is_kept_and_other_lines_are_skipped() -> None:
    lines = ["plain", VERDICT, PROGRESS.replace("30", "20"), '{"not": "ours"}', "{broken", PROGRESS]
    assert read_records(lines) == Progress("passed", 30, 100, 2.5)


def test_the_termination_message_tells_the_verdict_and_the_reason_of_a_host_that_has_ended() -> None:
    pod = make_pod(phase="Failed", containers=(terminated(3, message=END),))
    assert read_termination(pod) == Progress("refused", message="host 1 has other files", reason="PreflightError")
    (host, *_) = job_state(Observation(make_jobset(), pods=(pod,))).hosts
    assert host.exit_code == 3
    assert host_row(host, is_wide=False)[HOST_HEADER.index("PREFLIGHT")] == "refused"


def test_a_termination_message_taken_from_the_log_ends_with_what_broke() -> None:
    log = "Traceback (most recent call last):\n  File x\nKeyError: 'text'\n"
    assert read_termination(make_pod(phase="Failed", containers=(terminated(1, message=log),))) == Progress(
        message="KeyError: 'text'"
    )
    assert read_termination(make_pod(phase="Failed", containers=(terminated(1),))) is None


def test_data_for_scripts_is_plain_and_names_each_host() -> None:
    data = as_data(job_state(Observation(make_jobset(slices=1, hosts=2), now=NOW)), None)
    assert [host["host"] for host in data["hosts"]] == ["0/0", "0/1"]
    assert (data["phase"], data["cause"]) == ("Starting", None)
    assert data["created"] == "2026-03-01T11:50:00+00:00"
