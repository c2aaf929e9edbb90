"""All hosts followed until the job has ended: pending hosts, restarts and vanished nodes included, each line once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from tpulaunch.cluster.conditions import Phase, phase_of
from tpulaunch.cluster.kinds import JOBSET, POD
from tpulaunch.cluster.lines import StampedLine
from tpulaunch.cluster.logs import JobRef, LogLine, Notice, Out, Selection, Source, source_of
from tpulaunch.cluster.objects import LABEL_ATTEMPT, LABEL_JOBSET, Object, index_of, name_of, uid_of
from tpulaunch.cluster.pod_log import Choice, ContainerLog, LogPlace, PodTable, container_state, worker_containers
from tpulaunch.cluster.state import place_of, present_pods
from tpulaunch.cluster.wait import Deadline
from tpulaunch.errors import NotFoundError

#: How long the rest of the logs may take once the job has ended.
_DRAIN_SECONDS = 20.0
#: When, and how often, to ask why nothing runs.
_ASK_WHY_SECONDS = 10.0
#: Lines that wait for a slow reader before the hosts' streams are held back.
_BUFFERED_LINES = 10_000

Key = tuple[str, str]


def follow_logs(
    job: JobRef,
    selection: Selection,
    choice: Choice,
    out: Out,
    *,
    why: Callable[[], str] = lambda: "",
    deadline: Deadline | None = None,
) -> Phase | None:
    """Hand on every line of every host as it comes, until the job has ended; return how, or None at the deadline.

    Args:
        job: The job.
        selection: Which hosts.
        choice: Which part of the logs that are there already.
        out: Gets lines and notices, in this thread.
        why: Asked for a cause when nothing runs for a while.
        deadline: Until when to follow; None: to the end.

    Raises:
        NotFoundError: There is no such job, or it was deleted meanwhile.
    """
    following = _Following(job, selection, choice, out, why=why)
    following.deadline = deadline or Deadline.after(None)
    try:
        return following.run()
    finally:
        following.close()


class _Following:
    """Threads (two watches, one for each container) report into ``events``; one loop reads them and is alone to act."""

    def __init__(self, job: JobRef, selection: Selection, choice: Choice, out: Out, *, why: Callable[[], str]) -> None:
        self.job, self.selection, self.choice, self.out, self.why = job, selection, choice, out, why
        self.jobset = job.get()
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=_BUFFERED_LINES)
        self.table, self.stop = PodTable(), threading.Event()
        self.logs: dict[Key, tuple[Source, ContainerLog]] = {}
        self.running: set[Key] = set()
        self.deadline = Deadline.after(None)
        self.end: Phase | None = None
        self.drained_by = 0.0
        self.attempt = 0
        self.has_lines = False
        self.told = ""

    def run(self) -> Phase | None:
        """Watch and read until the job has ended and its logs are read, or until the deadline."""
        self._spawn("watch-jobsets", self._watch_jobset)
        self._spawn("watch-pods", self._watch_pods)
        ask_at = time.monotonic() + _ASK_WHY_SECONDS
        while not self._is_over():
            if self.deadline.left_seconds == 0:
                return None
            try:
                kind, value = self.events.get(timeout=1.0)
            except queue.Empty:
                if self.end is None and not self.has_lines and time.monotonic() > ask_at:
                    ask_at = time.monotonic() + _ASK_WHY_SECONDS
                    self._tell(self.why())
                continue
            self._act(kind, value)
        return self._finish()

    def close(self) -> None:
        """End every thread."""
        self.stop.set()
        self.table.wake()
        for key in list(self.running):
            self.logs[key][1].interrupt()

    def _is_over(self) -> bool:
        is_read = not self.running or time.monotonic() > self.drained_by
        return self.end is not None and is_read and self.events.empty()

    def _act(self, kind: str, value: Any) -> None:
        match kind:
            case "line":
                self.has_lines = True
                self.out(value)
            case "notice":
                self.out(value)
            case "ended":
                self.running.discard(value)
            case "error":
                raise value
            case "pods":
                self._start_new(value)
                self._tell_waiting(value)
            case "jobset" if self.end is None:
                self._see(value)

    def _see(self, state: dict[str, Object]) -> None:
        jobset = next(iter(state.values()), None)
        if jobset is None or uid_of(jobset) != uid_of(self.jobset):
            self.end = Phase.DELETING
        else:
            self.jobset = jobset
            self.end = phase if (phase := phase_of(jobset)).is_terminal else None
        if self.end is not None:  # a job that ends fast may have pods that no watch has shown yet
            self._start_new({name_of(pod): pod for pod in self.job.pods()})
            self.drained_by = time.monotonic() + _DRAIN_SECONDS

    def _finish(self) -> Phase:
        if unread := sorted(self.logs[key][0].label for key in self.running):
            self.out(Notice(f"the log could not be read to its end: {', '.join(unread)}"))
        if self.end is Phase.DELETING or self.end is None:
            raise NotFoundError(f"{JOBSET.spelled}/{self.job.name} was deleted in namespace {self.job.namespace}")
        return self.end

    def _watch_jobset(self) -> None:
        job = self.job
        for state in job.api.follow(JOBSET, job.namespace, name=job.name, stop=self.stop):
            self._report("jobset", state)

    def _watch_pods(self) -> None:
        job = self.job
        for state in job.api.follow(POD, job.namespace, labels=f"{LABEL_JOBSET}={job.name}", stop=self.stop):
            by_name = {name_of(pod): pod for pod in state.values()}
            self.table.update(by_name)
            self._report("pods", by_name)

    def _start_new(self, pods: dict[str, Object]) -> None:
        """Start reading the containers that are new, and announce a new attempt before its first line."""
        for pod in sorted(pods.values(), key=lambda pod: (index_of(pod, LABEL_ATTEMPT) or 0, place_of(pod) or (0, 0))):
            place, attempt = place_of(pod), index_of(pod, LABEL_ATTEMPT) or 0
            if place is None or not self.selection.takes(place):
                continue
            if attempt > self.attempt:
                self.attempt = attempt
                self.out(Notice(f"attempt {attempt} starts: the job was restarted, all hosts begin anew"))
            for twin, container in enumerate(worker_containers(pod, self.selection.container)):
                key = (name_of(pod), container)
                if key not in self.logs:
                    self._start(key, pod, source_of(self.jobset, place, twin))

    def _start(self, key: Key, pod: Object, source: Source) -> None:
        def emit(line: StampedLine) -> None:
            self._report("line", LogLine(source, line))

        def notify(text: str) -> None:
            self._report("notice", Notice(f"host {source.label}: {text}"))

        self.table.add(pod)
        log = ContainerLog(LogPlace(self.job.api, self.job.namespace, *key), self.choice, emit, notify)
        self.logs[key] = source, log
        self.running.add(key)

        def read() -> None:
            try:
                log.follow(self.table, self.stop)
            finally:
                self._report("ended", key)

        self._spawn(f"log-{source.label}", read)

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # raised in the loop, where somebody can be told
                self._report("error", error)

        threading.Thread(target=guarded, daemon=True, name=name).start()

    def _report(self, kind: str, value: Any) -> None:
        while not self.stop.is_set():
            try:
                self.events.put((kind, value), timeout=1.0)
            except queue.Full:
                continue
            return

    def _tell(self, text: str) -> None:
        if text and text != self.told:
            self.told = text
            self.out(Notice(text))

    def _tell_waiting(self, pods: dict[str, Object]) -> None:
        if self.has_lines:
            return
        phase = phase_of(self.jobset)
        if phase in (Phase.QUEUED, Phase.SUSPENDED):
            self._tell(f"waiting: the job is {phase.lower()}")
            return
        waiting = [
            place
            for place, pod in present_pods(list(pods.values())).items()
            if self.selection.takes(place)
            and not any(container_state(pod, c).has_started for c in worker_containers(pod, self.selection.container))
        ]
        if waiting and not self.told.startswith("waiting for"):
            self._tell(f"waiting for {len(waiting)} host{'s' if len(waiting) != 1 else ''} to start")
