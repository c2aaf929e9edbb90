"""Worker processes of this machine: started with their pipes, watched through one queue, ended without a trace."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

#: Time in which the rest of a pipe is read after its process has ended.
_DRAIN_SECONDS = 2.0


@dataclass(frozen=True)
class Line:
    """A line that a worker wrote, without its end."""

    rank: int
    text: str


@dataclass(frozen=True)
class Ended:
    """A worker that has ended; ``code`` is that of a shell: 128 + n after signal n."""

    rank: int
    code: int


@dataclass
class Workers:
    """The processes of one job.

    Attributes:
        events: What happens, in the order in which it was noticed.
        codes: Exit codes of those that have ended, by rank.
    """

    events: queue.Queue[Line | Ended] = field(default_factory=queue.Queue)
    codes: dict[int, int] = field(default_factory=dict)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one more worker, in a session of its own so that Ctrl-C reaches it only through us."""
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        rank = len(self._processes)
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._read, args=(rank, pipe), daemon=True)
            for pipe in (process.stdout, process.stderr)
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._await, args=(rank, process, readers), daemon=True).start()

    @property
    def are_running(self) -> bool:
        """Whether the end of any worker is still to be noticed."""
        return len(self.codes) < len(self._processes)

    def next_event(self, timeout_seconds: float | None = None) -> Line | Ended | None:
        """Return what happens next, or None after the time."""
        try:
            event = self.events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        if isinstance(event, Ended):
            self.codes[event.rank] = event.code
        return event

    def terminate(self) -> None:
        """Ask every worker that runs to end."""
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every worker and whatever it has started, at once."""
        for process in self._processes:
            # Those a worker has started keep its session, whatever process group they have made.
            for pid in _session_of(process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait()

    def _read(self, rank: int, pipe: IO[bytes]) -> None:
        with pipe, contextlib.suppress(ValueError, OSError):
            for line in pipe:
                self.events.put(Line(rank, line.decode("utf-8", "replace").rstrip("\r\n")))

    def _await(self, rank: int, process: subprocess.Popen[bytes], readers: Sequence[threading.Thread]) -> None:
        code = process.wait()
        deadline = time.monotonic() + _DRAIN_SECONDS
        for reader in readers:  # its last lines come before its end
            reader.join(max(0.0, deadline - time.monotonic()))
        self.events.put(Ended(rank, code if code >= 0 else 128 - code))


def _session_of(pid: int) -> list[int]:
    """Return the processes of a session, the leader left out; only Linux tells."""
    members = []
    for entry in Path("/proc").glob("[0-9]*") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError, ValueError, ProcessLookupError):
            if int(entry.name) != pid and os.getsid(int(entry.name)) == pid:
                members.append(int(entry.name))
    return members
