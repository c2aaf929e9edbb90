"""A few daemon threads with promises: they never keep a process alive, as the standard pool's threads do at exit."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Workers:
    """Threads that do what is submitted, in the order of submission.

    ``concurrent.futures`` finishes all queued work before an interpreter may exit, which would take seconds of
    tokenising that nobody waits for.

    Args:
        num_threads: How many.
        name: Prefix of their names.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], None]] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=_work_off, args=(self._work, self._stopped), name=f"{name}-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, action: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Return the promise of ``action(...)``; cancelled if it has no turn before :meth:`stop`."""
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action(*args, **kwargs))
            except BaseException as error:  # it belongs to whoever holds the promise
                future.set_exception(error)

        with self._lock:
            if self._stopped.is_set():
                future.cancel()
            else:
                self._work.put((future, run))
        return future

    def stop(self) -> None:
        """Begin nothing more, cancel what waits; what runs is finished."""
        with self._lock:
            self._stopped.set()
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting = self._work.get_nowait()
                    if waiting is not None:
                        waiting[0].cancel()
            for _ in self._threads:
                self._work.put(None)

    def join(self, deadline: float) -> None:
        """Wait for the threads until ``time.monotonic()`` reaches ``deadline``."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _work_off(work: queue.SimpleQueue[tuple[Future[Any], Callable[[], None]] | None], stopped: threading.Event) -> None:
    while not stopped.is_set():
        item = work.get()
        if item is None:
            return
        item[1]()
