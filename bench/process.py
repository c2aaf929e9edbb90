"""Starts one task in a fresh process, follows its reports and its memory, and ends it when its time is over."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.task import Task
from bench.tree import pss_bytes

_SAMPLE_SECONDS = 0.4
_TAIL_CHARACTERS = 600


@dataclass(frozen=True)
class Outcome:
    """What one process reported.

    Attributes:
        events: Facts by the name of the event, ``seconds`` since the start among them; lists for those sent often.
        peak_bytes: Most memory of the tree at any sample.
        base_bytes: Its memory when the imports were done.
        epoch_bytes: Its memory at the end of each epoch.
        failure: Empty, or the end of what it wrote to stderr.
        load: Load average of the machine before the start.
    """

    events: dict[str, dict[str, Any]]
    peak_bytes: int = 0
    base_bytes: int = 0
    epoch_bytes: list[int] = field(default_factory=list)
    failure: str = ""
    load: float = 0.0

    def get(self, event: str, name: str) -> Any:
        """Return a fact of an event, or None if the process never came that far."""
        return self.events.get(event, {}).get(name)


def run(task: Task, *, most_seconds: float, environment: Mapping[str, str] | None = None) -> Outcome:
    """Run one task to its end."""
    return run_together([task], most_seconds=most_seconds, environments=[environment or {}])[0]


def run_together(
    tasks: Sequence[Task],
    *,
    most_seconds: float,
    environments: Sequence[Mapping[str, str]],
) -> list[Outcome]:
    """Run several tasks at once, as the hosts of a job, and return their outcomes in their order."""
    members = [_Process(task, environment) for task, environment in zip(tasks, environments, strict=True)]
    try:
        _follow(members, time.monotonic() + most_seconds)
    finally:
        outcomes = [member.end() for member in members]
    return outcomes


def _follow(members: Sequence[_Process], deadline: float) -> None:
    """Take in reports and look at the memory until all have ended or the time is over."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.reader, selectors.EVENT_READ, member)
        sampled = 0.0
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(_SAMPLE_SECONDS):
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if time.monotonic() > sampled + _SAMPLE_SECONDS:
                sampled = time.monotonic()
                for member in members:
                    member.sample()


class _Process:
    def __init__(self, task: Task, environment: Mapping[str, str]) -> None:
        self.reader, writer = os.pipe()
        Path(task.scratch).mkdir(parents=True, exist_ok=True)
        self._log = Path(task.scratch, f"stderr-{task.measure}-{task.rank}.txt")
        self._events: dict[str, dict[str, Any]] = {}
        self._epochs: list[int] = []
        self._peak = self._base = 0
        self._rest = b""
        self._is_open = True
        self._load = os.getloadavg()[0]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.child", task.to_json(), str(writer), str(time.time())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                env={**os.environ, **_QUIET, **environment},
            )
        os.close(writer)

    def read(self) -> bool:
        """Take in what arrived; false once the process has closed its end."""
        chunk = os.read(self.reader, 1 << 20)
        self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            facts = json.loads(line)
            name = facts.pop("event")
            self._events[name] = facts
            if name == "end":  # workers that were forked hold the pipe open a while longer
                chunk = b""
            elif name == "imported":
                self._base = pss_bytes(self._process.pid)
            elif name == "epoch":
                self._epochs.append(facts["num_bytes"])
        self._is_open = bool(chunk)
        return self._is_open

    def sample(self) -> None:
        """Look at the memory of the tree."""
        if self._is_open:
            self._peak = max(self._peak, pss_bytes(self._process.pid))

    def end(self) -> Outcome:
        """Return what was reported; end the process and its children if they still run."""
        late = self._is_open
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if late else 5.0)
        with contextlib.suppress(ProcessLookupError):  # its own session: itself if it still runs, and its workers
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self.reader)
        failure = ""
        if late:
            failure = "not done in time"
        elif code:
            lines = self._log.read_text(errors="replace").strip()[-_TAIL_CHARACTERS:].splitlines()
            failure = lines[-1] if lines else f"exit code {code}"
        return Outcome(self._events, self._peak, self._base, self._epochs, failure, self._load)


#: No progress bars, no look at a hub, no accelerator, no greeting.
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "PJRT_DEVICE": "CPU",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "LITDATA_DISABLE_VERSION_CHECK": "1",
    "PYTHONWARNINGS": "ignore",
    "PYTHONHASHSEED": "0",
}
