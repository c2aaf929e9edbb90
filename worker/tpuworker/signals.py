"""Signals: a request to stop that the training loop can see, and the process that stands as PID 1 before the worker."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tpuworker.errors import EXIT_RETRY, RetryError

#: Sent on to the worker and all it has started.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: A killed process is gone at once, unless it hangs in a driver: then the kernel outlasts us anyway.
_REAP_SECONDS = 2.0
_POLL_SECONDS = 0.01


class StopRequest:
    """Whether somebody has asked this process to stop.

    While no training loop looks at it, a SIGTERM ends the process at once: nothing is there to be saved.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self.is_watched = False

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Ask to stop after the step under way."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Return once somebody has asked, at the latest after so many seconds; main thread only."""
        deadline = time.monotonic() + seconds
        while not self and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # not Event.wait: the handler, on this thread, would wait for its lock

    def listen(self) -> None:
        """Take SIGTERM for this request; main thread only."""
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._event.set()
        if not self.is_watched:
            raise RetryError("SIGTERM before the first step: nothing was trained, nothing is lost")


def die_with_parent() -> None:
    """Ask Linux to send this process SIGTERM when its parent ends, so that a killed launcher leaves nothing behind."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def supervise(work: Callable[[], int], on_death: Callable[[int], None]) -> int:
    """Run a function in a child process of its own group and return its exit code.

    The parent does what PID 1 of a container must: it hands signals on to the whole group, reaps orphans, and speaks
    for a worker that cannot speak any more. Called before anything heavy is imported, so that the fork is small.

    Args:
        work: Returns the exit code; runs in the child.
        on_death: Called in the parent with the signal's number if a signal killed the child.

    Returns:
        The child's code; 128 + n after signal n, except that SIGABRT, by which the distributed runtimes end a process
        whose peer is gone, asks for a restart as a caught failure of theirs does.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        _leave(work())
    with contextlib.suppress(OSError):
        os.setpgid(child, child)

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    status = _wait_for(child)
    _end_the_rest(child)
    if os.WIFSIGNALED(status):
        killer = os.WTERMSIG(status)
        on_death(killer)
        return EXIT_RETRY if killer == signal.SIGABRT else 128 + killer
    return os.waitstatus_to_exitcode(status)


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _end_the_rest(group: int) -> None:
    """Kill and reap what the worker has left running: its group, and orphans that came to us from other groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            for orphan in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(orphan, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_POLL_SECONDS)


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def _leave(code: int) -> None:
    """End the process now: threads inside Arrow or a runtime's barrier may hold up an orderly exit for minutes."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
