"""The log of one container, read to its end: through pending, broken streams, rotation, and restarts in place."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tpulaunch.cluster.api import Api, Stream
from tpulaunch.cluster.errors import ApiError, UnreachableError
from tpulaunch.cluster.kinds import POD
from tpulaunch.cluster.lines import LineCutter, Position, StampedLine
from tpulaunch.cluster.objects import Object, dig, name_of

#: A quiet log is asked for again after this long; that costs nothing, and finds connections that died silently.
_QUIET_SECONDS = 300.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0


@dataclass(frozen=True)
class Choice:
    """Which part of a log is wanted.

    Attributes:
        tail: Last lines of each container; None: all.
        since_seconds: Only lines younger than this; None: all.
        is_previous: The log of the container before the present one, and nothing else.
    """

    tail: int | None = None
    since_seconds: float | None = None
    is_previous: bool = False


@dataclass(frozen=True)
class LogPlace:
    """The container whose log it is."""

    api: Api
    namespace: str
    pod: str
    container: str

    def pod_now(self) -> Object | None:
        """Ask for the pod itself."""
        return self.api.get(POD, self.namespace, self.pod)

    def open(self, query: dict[str, Any]) -> Stream:
        """Open the log as the query says."""
        path = POD.path("v1", self.namespace, self.pod, "log")
        return self.api.stream(path, {"container": self.container, **query}, read_seconds=_QUIET_SECONDS)


class PodTable:
    """The pods of a job as a watch sees them, shared by the threads that read their logs."""

    def __init__(self) -> None:
        self._pods: dict[str, Object] = {}
        self._changed = threading.Condition()

    def update(self, pods: dict[str, Object]) -> None:
        """Take over a whole new state, by pod name."""
        with self._changed:
            self._pods = pods
            self._changed.notify_all()

    def add(self, pod: Object) -> None:
        """Take over a pod that no state has shown yet."""
        with self._changed:
            self._pods = {name_of(pod): pod, **self._pods}

    def get(self, name: str) -> Object | None:
        """Return a pod, or None if it is gone."""
        with self._changed:
            return self._pods.get(name)

    def wait_other_than(self, name: str, seen: Object | None, seconds: float) -> None:
        """Return when a pod is otherwise than it was seen, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._pods.get(name) is not seen, timeout=seconds)

    def wake(self) -> None:
        """Let every waiting thread look again."""
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True)
class ContainerState:
    """What matters of a container for its log.

    Attributes:
        has_started: Whether there is, or was, a process.
        has_ended: Whether the process has ended, for good or until a restart.
        restarts: Restarts in place.
        is_final: Whether no process will follow in this pod.
    """

    has_started: bool
    has_ended: bool
    restarts: int
    is_final: bool


def container_state(pod: Object, container: str) -> ContainerState:
    """Return the state of a pod's container."""
    statuses = dig(pod, "status", "containerStatuses", default=[])
    status: Object = next((found for found in statuses if found.get("name") == container), {})
    is_over = dig(pod, "status", "phase") in ("Succeeded", "Failed")
    has_ended = dig(status, "state", "terminated") is not None
    has_started = has_ended or dig(status, "state", "running") is not None or bool(status.get("restartCount"))
    never_restarts = dig(pod, "spec", "restartPolicy") == "Never"
    return ContainerState(
        has_started, has_ended, int(status.get("restartCount") or 0), is_over or (has_ended and never_restarts)
    )


class ContainerLog:
    """One container's log, followed or read once. ``emit`` gets each line once and in order."""

    def __init__(
        self,
        where: LogPlace,
        choice: Choice,
        emit: Callable[[StampedLine], None],
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._where = where
        self._choice = choice
        self._emit = emit
        self._notify = notify
        self._position = Position()
        self._restarts_seen: int | None = None
        self._rest = b""
        self._stream: Stream | None = None

    def interrupt(self) -> None:
        """Break off a read from another thread."""
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def follow(self, table: PodTable, stop: threading.Event) -> bool:
        """Read until the container has ended for good or its pod is gone; return whether the end was seen."""
        pause, was_told = _FIRST_PAUSE_SECONDS, False
        while not stop.is_set():
            pod = table.get(self._where.pod) or self._where.pod_now()  # a watch may be a moment behind
            if pod is None:
                self._flush()
                return True
            state = container_state(pod, self._where.container)
            if not state.has_started:
                if state.is_final:
                    return True
                table.wait_other_than(self._where.pod, pod, _LONGEST_PAUSE_SECONDS)
                continue
            try:
                self._read_restarts(state)
                got = self._read(is_followed=not (state.has_ended or state.is_final))
                if state.is_final:
                    self._flush()
                    return True
                pause = _FIRST_PAUSE_SECONDS if got else pause
            except ApiError as error:
                if error.status.code == 404 and self._where.pod_now() is None:
                    self._flush()
                    return True
                if error.status.code != 400 and not was_told:  # 400: the container has not started yet
                    self._notify(f"its log cannot be read just now: {error.status.message}")
                    was_told = True
            except UnreachableError:
                pass  # broken off: attach again where it ended
            table.wait_other_than(self._where.pod, pod, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return False

    def read_once(self, state: ContainerState) -> None:
        """Read what is there, and no more. A broken stream is taken up again a few times.

        Raises:
            ApiError: The server refuses.
            UnreachableError: It cannot be reached any more.
        """
        for attempts_left in (4, 3, 2, 1, 0):
            try:
                if self._choice.is_previous:
                    self._read(is_followed=False, is_previous=True)
                else:
                    self._read_restarts(state)
                    self._read(is_followed=False)
                break
            except UnreachableError as error:
                if not attempts_left or not error.is_broken_connection:
                    raise
        self._flush()

    def _read_restarts(self, state: ContainerState) -> None:
        """Read the end of the container before this one, when it was restarted since it was read last (or at all)."""
        if state.restarts <= (self._restarts_seen or 0):
            self._restarts_seen = state.restarts
            return
        try:
            self._read(is_followed=False, is_previous=True)
        except ApiError as error:
            if error.status.code not in (400, 404):  # its log is no longer kept
                raise
        self._flush()
        self._notify(f"container restarted ({state.restarts})")
        self._restarts_seen = state.restarts

    def _read(self, *, is_followed: bool, is_previous: bool = False) -> bool:
        """Read one answer to its end; return whether it brought a new line. An unfinished last line is kept back."""
        self._position.attach()
        since = self._position.since
        is_first = since is None
        query = {
            "timestamps": "true",
            "follow": "true" if is_followed else None,
            "previous": "true" if is_previous else None,
            "sinceTime": since,
            "tailLines": self._choice.tail if is_first else None,
            "sinceSeconds": max(1, round(self._choice.since_seconds))
            if is_first and self._choice.since_seconds is not None
            else None,
        }
        cutter, got = LineCutter(), False
        with self._where.open(query) as stream:
            self._stream = stream
            try:
                for chunk in stream:
                    for raw in cutter.feed(chunk):
                        got |= self._take(raw)
            finally:
                self._stream = None
                self._rest = cutter.rest()
        return got

    def _take(self, raw: bytes) -> bool:
        line = StampedLine.read(raw)
        is_new = self._position.take(line)
        if is_new:
            self._emit(line)
        return is_new

    def _flush(self) -> None:
        """Hand on a last line that has no line feed, once it is known that none will come."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)


def worker_containers(pod: Object, wanted: str) -> list[str]:
    """Return the containers whose logs are meant: ``wanted`` and its numbered twins, else the pod's first."""
    names = [str(container.get("name")) for container in dig(pod, "spec", "containers", default=[])]
    return [name for name in names if re.fullmatch(rf"{re.escape(wanted)}(-\d+)?", name)] or names[:1]


def read_all(
    log_of: Callable[[Callable[[StampedLine], None]], ContainerLog], state: ContainerState
) -> Iterator[StampedLine]:
    """Yield the lines of a log read once, as they arrive, through a small buffer."""
    lines: queue.Queue[StampedLine | BaseException | None] = queue.Queue(maxsize=1000)

    def read() -> None:
        try:
            log_of(lines.put).read_once(state)
            lines.put(None)
        except BaseException as error:
            lines.put(error)

    threading.Thread(target=read, daemon=True, name="log").start()
    while (line := lines.get()) is not None:
        if isinstance(line, BaseException):
            raise line
        yield line
