"""A machine made of Linux namespaces: everything that runs in it, its mounts and its network go when its init goes.

The kernel keeps the promise that nothing stays behind: when the first process of a PID namespace dies, every other
process in it is killed, and with the last process its mount and network namespaces disappear. So nothing needs to be
remembered and undone. Machines nest; the cluster is one machine, and each node is a machine inside it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.cluster.errors import ClusterError
from tests.cluster.patience import COMMAND_SECONDS, END_SECONDS

Namespace = Literal["pid", "mount", "net", "uts", "ipc"]


@dataclass(frozen=True)
class Machine:
    """A running machine. `init_pid` is its first process as this process's own PID namespace numbers it.

    `start_ticks` is that process's start time from /proc, so that a recycled number is never taken for the machine.
    """

    name: str
    init_pid: int
    start_ticks: int
    namespaces: tuple[Namespace, ...]

    @classmethod
    def boot(
        cls,
        name: str,
        namespaces: Sequence[Namespace],
        inside: Machine | None = None,
        dies_with_caller: bool = False,
    ) -> Machine:
        """Starts a machine with new namespaces of the given kinds, by default in those of this process.

        With `dies_with_caller` the kernel ends it when the calling *thread* ends, so call it from the main thread.
        """
        ready = "echo ready; exec sleep infinity >/dev/null"
        command = [
            *(["setpriv", "--pdeathsig=KILL"] if dies_with_caller else []),
            *(inside.enter() if inside else []),
            "unshare", "--fork", "--kill-child=SIGKILL", "--mount-proc", *(f"--{kind}" for kind in namespaces),
            "tini", "-s", "--", "sh", "-c", ready,
        ]  # fmt: skip
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _FOREGROUND.append(process)  # at once: a machine around it that is switched off meanwhile ends it unfinished
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            if process.stdout.readline().strip() != b"ready":
                raise ClusterError(f"no machine {name!r}: {process.stderr.read().decode().strip()}")
        pid = process.pid
        while _command(pid) != "tini":
            pid = _only_child(pid)
        return cls(name, pid, _start_ticks(pid), tuple(namespaces))

    def enter(self) -> list[str]:
        """The command prefix that runs what follows inside this machine."""
        return ["nsenter", f"--target={self.init_pid}", *(f"--{kind}" for kind in self.namespaces), "--"]

    def start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program in the machine, its output appended to `log`. The handle is that of the entering process."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self.enter(), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "HOME": "/root", "USER": "root", **(environment or {})},
                start_new_session=True,
            )
        _FOREGROUND.append(process)
        return process

    def run(self, *command: str, timeout_seconds: float = COMMAND_SECONDS) -> str:
        """Runs a program in the machine to its end and returns what it printed."""
        return run(*self.enter(), *command, timeout_seconds=timeout_seconds)

    def is_alive(self) -> bool:
        """Whether the machine's init still runs."""
        return is_alive(self.init_pid, self.start_ticks)

    def power_off(self) -> None:
        """Kills everything in the machine and waits until it is gone."""
        end(self.init_pid, self.start_ticks)


_FOREGROUND: list[subprocess.Popen[bytes]] = []


def reap() -> None:
    """Collects the exit states of processes that this process started and that have ended, or are about to.

    Each entered a machine and waits there for one child; without it, it is ending. Those of other clusters run on.
    """
    for process in list(_FOREGROUND):
        if process.poll() is None and _children(process.pid):
            continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            _FOREGROUND.remove(process)


def run(*command: str, timeout_seconds: float = COMMAND_SECONDS) -> str:
    """Runs a program to its end and returns what it printed; a failure carries its words."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_seconds)
    if done.returncode != 0:
        raise ClusterError(
            f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether exactly this process still runs (not a later one with its number, nor one only not yet reaped)."""
    try:
        return _start_ticks(pid) == start_ticks and _state(pid) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid: int, start_ticks: int, timeout_seconds: float = END_SECONDS) -> None:
    """Kills exactly this process and waits for its end."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(pid, start_ticks):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(timeout_seconds * 1000):
                raise ClusterError(f"process {pid} did not end within {timeout_seconds} s of SIGKILL")
    finally:
        os.close(handle)


def start_ticks_of_this_process() -> int:
    """The start time by which this process is told from a later one with its number."""
    return _start_ticks(os.getpid())


def _stat(pid: int) -> list[str]:
    # The command name, in parentheses, may itself hold blanks and parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _start_ticks(pid: int) -> int:
    return int(_stat(pid)[19])


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _only_child(pid: int) -> int:
    children = _children(pid)
    if len(children) != 1:
        raise ClusterError(f"process {pid} ({_command(pid)}) should have one child and has {len(children)}")
    return children[0]
