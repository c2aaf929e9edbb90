"""How the process ends when the world around it fails: closed pipes, full disks, Ctrl-C, faults of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.builders import spec_text
from tpulaunch.cli import main as entry
from tpulaunch.errors import JobFailedError, NotFoundError

PROGRAM = [sys.executable, "-c", "from tpulaunch.cli.main import run; run()"]


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(spec_text())
    return str(path)


def test_a_reader_that_goes_away_is_no_error_to_talk_about(job: str) -> None:
    process = subprocess.Popen([*PROGRAM, "tpus", "--all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_and_fails(job: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, "render", job], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("error: output: No space left on device\n")


def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen([*PROGRAM, "validate", str(pipe)], stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):  # returns when the command has opened the other end, and then waits for text
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (NotFoundError("no such job"), 3, "error: no such job\n"),
        (JobFailedError("it failed"), 125, "error: it failed\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (RuntimeError("odd"), 1, "error:\na fault of tpulaunch itself: RuntimeError: odd\nplease report it;"),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setattr(entry, "_run", fail)
    assert entry.main([]) == code
    assert capsys.readouterr().err.startswith(words)


def test_kubectl_finds_it_as_a_plug_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-tpulaunch"])
    assert entry.main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl tpulaunch")


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from tpulaunch.cli.output import use_color

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert use_color(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_color(Terminal())
