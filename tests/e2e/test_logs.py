"""Logs of a real cluster: kubelet, container runtime and API server between the writing and the reading."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.e2e.conftest import TWO_HOSTS, User, eventually

pytestmark = pytest.mark.cluster

FOUR_HOSTS = {**TWO_HOSTS, "count": 2}
COUNT = (
    'i=0; while [ $i -lt 200 ]; do echo "$TPULAUNCH_SLICE_INDEX/$JOB_COMPLETION_INDEX says $i größe"; '
    'i=$((i+1)); done; printf "last words"'
)


def test_every_line_of_every_host_arrives_once_in_order_and_the_exit_code_is_the_jobs(user: User) -> None:
    printed = user.submits(f"{COUNT}; exit 3", "--follow", slice=FOUR_HOSTS)
    assert printed.code == 125
    by_host: dict[str, list[str]] = {}
    created, *lines = printed.out.splitlines()
    assert created == "jobset.jobset.x-k8s.io/tiny created"
    for line in lines:
        host, _, text = line.partition(" | ")
        by_host.setdefault(host, []).append(text)
    # A host whose peers failed first may be ended before it has written all: what it wrote is there, in order.
    for host, said in by_host.items():
        assert said == [*(f"{host} says {i} größe" for i in range(200)), "last words"][: len(said)]
    assert any(len(lines) == 201 for lines in by_host.values())
    # Kubernetes removes the pods that still run when the job fails: what is left is shown, what is not is named.
    again = user.types("logs", "tiny")
    for host, said in by_host.items():
        is_told = re.search(rf"(no pod left: .*|host )\b{host}\b", again.err)
        assert bool(is_told) or again.out.count(f"{host} | ") >= len(said)
    assert again.out.count("\n") >= 201


def test_hosts_times_and_tails_are_chosen(user: User) -> None:
    user.submits(COUNT, "--wait", slice=FOUR_HOSTS)
    printed = user.types("logs", "tiny", "--host", "1/*", "--tail", "2", "--timestamps")
    lines = sorted(re.sub(r"\| \S+Z ", "| ", line) for line in printed.out.splitlines())
    assert lines == [
        "1/0 | 1/0 says 199 größe",
        "1/0 | last words",
        "1/1 | 1/1 says 199 größe",
        "1/1 | last words",
    ]
    assert user.types("logs", "tiny", "--since", "1h").out.count("\n") == 4 * 201
    assert user.types("logs", "tiny", "--host", "7").code == 2
    assert user.types("logs", "other").code == 3


def test_a_host_without_a_pod_yet_is_waited_for_and_the_reason_is_told(user: User) -> None:
    printed = user.submits("true", "--follow", "--timeout=25s", slice={"generation": "v5p", "topology": "2x2x1"})
    assert printed.code == 124
    assert "-- no node has cloud.google.com/gke-tpu-accelerator=tpu-v5p-slice" in printed.err


def test_ctrl_c_detaches_and_leaves_the_job_running(user: User) -> None:
    user.submits("echo here; sleep 1000")
    command = [
        sys.executable,
        "-c",
        "from tpulaunch.cli.main import run; run()",
        "logs",
        "-f",
        "tiny",
        "-n",
        user.namespace,
    ]
    environment = {**os.environ, "KUBECONFIG": str(user.cluster.kubeconfig), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0/0 | here\n"
        process.send_signal(signal.SIGINT)
        try:
            _, words = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "detached; the job runs on" in words
    assert "Traceback" not in words
    phase = eventually(
        lambda: user.types("status", "tiny", "-o", "jsonpath={.phase}").out, lambda out: out != "Starting"
    )
    assert phase == "Running"


def test_the_workers_records_become_verdict_step_and_rate_in_the_status(user: User) -> None:
    records = (
        '{"severity":"INFO","event":"preflight","message":"fit","verdict":"passed","preflight":{"verdict":"passed"}}',
        '{"severity":"INFO","event":"progress","message":"step","step":30,"num_steps":100,"steps_per_second":2.5}',
    )
    user.submits("; ".join(f"echo '{record}'" for record in records) + "; sleep 1000")
    found = eventually(
        lambda: user.types("status", "tiny", "-o", "json").data["hosts"][0]["progress"] or {},
        lambda p: p.get("step") == 30,
    )
    assert (found["verdict"], found["num_steps"], found["steps_per_second"]) == ("passed", 100, 2.5)
    shown = eventually(lambda: user.types("status", "tiny").out, lambda out: "Running" in out)
    for word in ("passed", "30/100", "2.5", "Ready"):
        assert word in shown
    listed = user.types("list").out.splitlines()
    assert listed[0].split()[:6] == ["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE"]
    assert listed[1].startswith("tiny ")
    assert user.types("list", "-o", "name").out == "jobset.jobset.x-k8s.io/tiny\n"
