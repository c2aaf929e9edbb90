"""Waiting by watch, never by sleeping: until a job has ended, until it is gone, within a deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import Phase, phase_of
from tpulaunch.cluster.durations import format_age
from tpulaunch.cluster.kinds import JOBSET, POD, Kind
from tpulaunch.cluster.objects import LABEL_JOBSET, LABEL_JOBSET_UID, Object, label_of, uid_of
from tpulaunch.errors import NotFoundError, WaitTimeoutError


@dataclass(frozen=True)
class Deadline:
    """A moment to be done by.

    Attributes:
        seconds: How long it was from the start; None: for ever.
        end: The moment on the monotonic clock; None: never.
    """

    seconds: float | None
    end: float | None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Return a deadline so many seconds from now; None: no deadline."""
        return cls(seconds, None if seconds is None else time.monotonic() + seconds)

    @property
    def left_seconds(self) -> float | None:
        """Seconds that are left, at least 0; None: for ever."""
        return None if self.end is None else max(0.0, self.end - time.monotonic())


def states(
    api: Api, kind: Kind, namespace: str, deadline: Deadline, what: str, *, name: str | None = None, labels: str = ""
) -> Iterator[dict[str, Object]]:
    """Yield the states of a kind as they change, until the deadline.

    Raises:
        WaitTimeoutError: The deadline came first; ``what`` says what was waited for.
    """
    changes: queue.Queue[dict[str, Object] | Exception] = queue.Queue()
    stop = threading.Event()

    def watch() -> None:
        try:
            for state in api.follow(kind, namespace, name=name, labels=labels or None, stop=stop):
                changes.put(state)
        except Exception as error:  # handed to the waiting thread, which raises it
            changes.put(error)

    threading.Thread(target=watch, daemon=True, name=f"watch-{kind.plural}").start()
    try:
        while True:
            try:
                state = changes.get(timeout=deadline.left_seconds)
            except queue.Empty:
                raise WaitTimeoutError(f"{what} within {format_age(deadline.seconds or 0)}") from None
            if isinstance(state, Exception):
                raise state
            yield state
    finally:
        stop.set()


def await_gone(api: Api, namespace: str, name: str, uid: str, deadline: Deadline) -> None:
    """Return once the JobSet of this UID, and every pod of it, is gone.

    Raises:
        WaitTimeoutError: They are still there at the deadline.
    """
    what = f"{JOBSET.spelled}/{name} in namespace {namespace} was not gone"
    for state in states(api, JOBSET, namespace, deadline, what, name=name):
        if uid not in state:
            break
    for state in states(api, POD, namespace, deadline, f"the pods of {what}", labels=f"{LABEL_JOBSET}={name}"):
        if not any(label_of(pod, LABEL_JOBSET_UID) in (uid, None) or not uid for pod in state.values()):
            break


def await_end(
    api: Api, namespace: str, name: str, deadline: Deadline, on_change: Callable[[Object], None] = lambda _: None
) -> Phase:
    """Return how a job ended, once it has.

    Args:
        api: The connection.
        namespace: Its namespace.
        name: Its name.
        deadline: How long to wait.
        on_change: Told each state of the JobSet.

    Raises:
        NotFoundError: It is not there, or was deleted meanwhile.
        WaitTimeoutError: It has not ended at the deadline.
    """
    uid = ""
    for state in states(api, JOBSET, namespace, deadline, f"{JOBSET.spelled}/{name} had not ended", name=name):
        jobset = next(iter(state.values()), None)
        if jobset is None or (uid and uid_of(jobset) != uid):
            gone = "was deleted" if uid else "does not exist"
            raise NotFoundError(f"{JOBSET.spelled}/{name} {gone} in namespace {namespace}")
        uid = uid_of(jobset)
        on_change(jobset)
        if (phase := phase_of(jobset)).is_terminal:
            return phase
    raise AssertionError("the states of a watch never end by themselves")
