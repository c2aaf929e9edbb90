"""How a local run ends: the first failure's code, Ctrl-C, twice Ctrl-C; and that nothing is left. Small programs stand
in for the worker here, since only processes and signals matter; real workers run in test_runs.py."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import make_job
from tpulaunch.local import run as run_local
from tpulaunch.local.run import _Local, host_environments
from tpuworker.identity import identify


def job(hosts: int = 2) -> object:
    topology = {1: "2x2", 2: "2x4", 4: "4x4"}[hosts]
    return make_job(slice={"topology": topology, "machine": "ct6e-standard-4t"}, schedule={"grace_seconds": 5})


def run_programs(tmp_path: Path, program: str, hosts: int = 2) -> tuple[int, str, str]:
    """Run a program as each host; ``rank`` is its host."""
    planned = job(hosts)
    out, err = io.StringIO(), io.StringIO()
    environments = host_environments(planned, dict(os.environ), {}, tmp_path)  # type: ignore[arg-type]
    program = f"import os, signal, sys\nrank = int(os.environ['TPU_WORKER_ID'])\n{program}"
    local = _Local(planned, environments, out=out, err=err, is_raw=False)  # type: ignore[arg-type]
    return local.run([sys.executable, "-c", program]), out.getvalue(), err.getvalue()


def test_all_good_is_zero_and_every_line_was_shown(tmp_path: Path) -> None:
    code, out, err = run_programs(tmp_path, "print('line', rank); print('error', rank, file=sys.stderr, end='')")
    assert code == 0
    assert sorted(out.splitlines()) == ["0/0 | error 0", "0/0 | line 0", "0/1 | error 1", "0/1 | line 1"]
    assert err == ""


def test_the_first_failure_ends_all_with_its_code(tmp_path: Path) -> None:
    code, _, err = run_programs(
        tmp_path, "if rank == 1: sys.exit(3)\nsignal.signal(15, lambda *a: sys.exit(0))\nsignal.pause()"
    )
    assert code == 3
    assert "host 0/1 failed first, with exit code 3" in err


def test_a_lost_peer_that_ends_before_the_cause_does_not_hide_it(tmp_path: Path) -> None:
    program = "if rank == 0: sys.exit(42)\nimport select; select.select([], [], [], 0.5); sys.exit(1)"
    code, _, err = run_programs(tmp_path, program)
    assert code == 1
    assert "host 0/1 failed first" in err


def test_a_killed_worker_counts_as_a_shell_would_say(tmp_path: Path) -> None:
    assert run_programs(tmp_path, "os.kill(os.getpid(), 9)", hosts=1)[0] == 137


def test_last_words_of_the_failed_host_are_shown(tmp_path: Path) -> None:
    program = (
        "import pathlib; place = pathlib.Path(os.environ['TPULAUNCH_TERMINATION_LOG'])\n"
        'place.write_text(\'{"message": "the corpus is empty"}\'); sys.exit(1)'
    )
    assert "exit code 1: the corpus is empty" in run_programs(tmp_path, program, hosts=1)[2]


_LAUNCHER = """
import os, sys
from pathlib import Path
from tests.local.test_ending import job
from tpulaunch.local.run import _Local, host_environments
planned = job()
local = _Local(planned, host_environments(planned, dict(os.environ), {}, Path(sys.argv[1])), out=sys.stdout,
               err=sys.stderr, is_raw=False)
sys.exit(local.run([sys.executable, "-c", sys.argv[2]]))
"""


def start_launcher(tmp_path: Path, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(tmp_path), f"import os, signal, sys\n{program}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )


def pids_of(launcher: subprocess.Popen[str], count: int) -> list[int]:
    assert launcher.stdout is not None
    return [int(launcher.stdout.readline().rpartition("| ")[2]) for _ in range(count)]


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that is dead and only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def assert_gone(pids: list[int]) -> None:
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_lets_the_workers_save_and_ends_with_130(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "signal.signal(15, lambda *a: (print('saved', flush=True), os._exit(42)))\n"
        "print(os.getpid(), flush=True)\nwhile True: signal.pause()"
    )
    with start_launcher(tmp_path, program) as launcher:
        pids = pids_of(launcher, 2)
        launcher.send_signal(number)
        out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert out.count("saved") == 2
    assert "5 s to save" in err
    assert_gone(pids)


def test_a_second_interrupt_ends_everything_at_once_grandchildren_too(tmp_path: Path) -> None:
    program = (
        "import subprocess\n"
        "signal.signal(15, lambda *a: print('not yet', flush=True))\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import os, signal; os.setpgid(0, 0); signal.pause()'])\n"
        "print(os.getpid(), flush=True); print(child.pid, flush=True)\nwhile True: signal.pause()"
    )
    with start_launcher(tmp_path, program) as launcher:
        pids = pids_of(launcher, 4)
        launcher.send_signal(signal.SIGINT)
        assert launcher.stdout is not None
        assert "not yet" in launcher.stdout.readline()
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert "at once" in err
    assert_gone(pids)


def test_every_host_is_told_exactly_who_it_is_and_nothing_foreign(tmp_path: Path) -> None:
    planned = job(4)
    inherited = {"PATH": "/bin", "TPU_WORKER_ID": "9", "RANK": "7", "XLA_FLAGS": "--xla_dump_to=/x"}
    environments = host_environments(planned, inherited, {}, tmp_path)  # type: ignore[arg-type]
    assert [identify(planned, e).host_rank for e in environments] == [0, 1, 2, 3]  # type: ignore[arg-type]
    assert len({identify(planned, e).coordinator_port for e in environments}) == 1  # type: ignore[arg-type]
    assert all("RANK" not in environment for environment in environments)
    assert environments[0]["XLA_FLAGS"] == "--xla_dump_to=/x --xla_force_host_platform_device_count=4"
    assert environments[0]["CPU_NUM_DEVICES"] == "4"


def test_users_variables_arrive_and_missing_secrets_are_told(tmp_path: Path) -> None:
    planned = make_job(
        slice={"topology": "2x2"},
        train={"env": {"MINE": "a $b 'c'"}, "secrets": {"HF_TOKEN": {"secret": "hf", "key": "token"}}},
    )
    assert host_environments(planned, {}, {}, tmp_path)[0]["MINE"] == "a $b 'c'"
    err = io.StringIO()
    text = planned.model_dump_json(by_alias=True, exclude_unset=True)
    code = run_local(planned, text, python="true", out=io.StringIO(), err=err, environment={})
    assert code == 0
    assert "not set: HF_TOKEN" in err.getvalue()
