"""The process before the worker: codes kept, signals handed to the whole group, nothing left, last words spoken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import sys
from tpuworker.signals import supervise

def work():
    exec(sys.argv[1], {})
    return 0

sys.exit(supervise(work, lambda number: print("killed by", number, flush=True)))
"""


def start(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("pass", 0),
        ("import os; os._exit(3)", 3),
        ("import os; os._exit(42)", 42),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("import os; os.abort()", 42),  # how a distributed runtime ends a process whose peer is gone
    ],
)
def test_the_workers_code_is_the_containers(code: str, wanted: int) -> None:
    with start(code) as process:
        process.communicate(timeout=60)
    assert process.returncode == wanted


def test_a_signal_reaches_the_worker_and_what_it_has_started() -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import signal, sys; signal.signal(15, lambda *a: sys.exit(9)); print(1, flush=True); signal.pause()'])\n"
        "import signal, os\n"
        "signal.signal(15, lambda *a: os._exit(child.wait() + 10))\n"
        "signal.pause()\n"
    )
    with start(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"  # the grandchild listens
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 19


def test_what_the_worker_has_left_running_ends_with_it() -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\n"
    )
    with start(code) as process:
        output, _ = process.communicate(timeout=60)
    with pytest.raises(ProcessLookupError):
        os.kill(int(output), 0)


def test_orphans_are_reaped_while_the_worker_runs() -> None:
    code = (
        "import os, subprocess, sys\n"
        "shell = subprocess.run(['sh', '-c', 'sleep 0.1 & echo $!'], stdout=subprocess.PIPE, text=True)\n"
        "orphan = int(shell.stdout)\n"
        "pidfd = None\n"
        "try: pidfd = os.pidfd_open(orphan)\n"
        "except ProcessLookupError: pass\n"
        "import select\n"
        "if pidfd is not None: select.select([pidfd], [], [], 30)\n"
        "for _ in range(300):\n"
        "    try: os.kill(orphan, 0)\n"
        "    except ProcessLookupError: break\n"
        "    os.sched_yield(); select.select([], [], [], 0.05)\n"
        "else: os._exit(1)\n"
    )
    with start(code) as process:
        process.communicate(timeout=60)
    assert process.returncode == 0


def run_worker(tmp_path: Path, spec: str, **environment: str) -> tuple[int, dict[str, object], str]:
    (tmp_path / "job.yaml").write_text(spec)
    words = tmp_path / "termination-log"
    done = subprocess.run(
        [sys.executable, "-m", "tpuworker", "--spec", str(tmp_path / "job.yaml")],
        env=os.environ | environment | {"TPULAUNCH_TERMINATION_LOG": str(words)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(words.read_text()) if words.exists() else {}, done.stdout + done.stderr


def test_a_spec_that_is_none_ends_with_two_and_its_faults_as_last_words(tmp_path: Path) -> None:
    code, words, output = run_worker(tmp_path, "kind: TPUJob\n")
    assert code == 2
    assert words["reason"] == "SpecError"
    assert "apiVersion" in str(words["message"])
    assert "Traceback" not in output


def command_job(tmp_path: Path, *command: str) -> str:
    from tests.builders import job_document

    document = job_document(slice={"generation": "v5e", "topology": "1x1"})
    document["spec"]["train"] = {"command": list(command)}
    return json.dumps(document)


def test_a_host_without_a_rank_ends_with_two_and_names_the_cause(tmp_path: Path) -> None:
    from tests.builders import job_document

    code, words, _ = run_worker(tmp_path, json.dumps(job_document()))
    assert code == 2
    assert words["reason"] == "IdentityError"
    assert "webhook" in str(words["message"])


def test_a_command_runs_in_the_workers_place_and_gives_its_code(tmp_path: Path) -> None:
    code, _, output = run_worker(tmp_path, command_job(tmp_path, "sh", "-c", "echo $MINE; exit 7"), MINE="here")
    assert (code, output) == (7, "here\n")


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    code, _, output = run_worker(tmp_path, command_job(tmp_path, "no-such-program"))
    assert code == 127
    assert "no-such-program: No such file" in output


def test_a_worker_that_was_killed_has_last_words_all_the_same(tmp_path: Path) -> None:
    code, words, output = run_worker(tmp_path, command_job(tmp_path, "sh", "-c", "kill -9 $$"))
    assert code == 137
    assert (words["reason"], words["exit_code"]) == ("SIGKILL", 137)
    assert "out of memory" in output
