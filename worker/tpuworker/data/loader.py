"""The loader: batches of one host with the cursor after each, made ahead by threads; errors reach the consumer."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import numpy as np

from tpuworker.data.batches import HostBatch, Made, Making, Pipeline, RowMaking, Work
from tpuworker.data.counters import Counters, LoaderStats
from tpuworker.data.cursor import Cursor
from tpuworker.data.index import Index
from tpuworker.data.job import DataJob, Host
from tpuworker.data.packing import PackedMaking
from tpuworker.data.plan import DataPlan, make_data_plan
from tpuworker.data.quality import ShuffleQuality, shuffle_quality
from tpuworker.data.rows import DEFAULT_BUDGET_BYTES, UnitReader
from tpuworker.data.streaming import StreamMaking
from tpuworker.data.tokenising import make_tokenising
from tpuworker.errors import DataError, Fault
from tpuworker.formats import UnitFormat
from tpuworker.storage import Storage
from tpuworker.workers import Workers

Item = TypeVar("Item")

_DEPTH = 4
_THREADS = 2
#: A process has to be gone a second after its last batch.
_EXIT_SECONDS = 0.8
_POLL_SECONDS = 0.1
#: Batches that are written ahead: enough for a consumer that is late now and then, few enough for the CPU's cache.
_MOST_AHEAD = 8
_FEWEST_AHEAD = 2
_AHEAD_BYTES = 64 << 20
_MOST_ARRAYS = 4


class Loader:
    """Iterates over this host's batches.

    Two runs over the same data give the same global batches, whatever the number of hosts, threads, or the depth.

    Args:
        job: The job.
        identity: Which host of how many this is.
        index: From :func:`tpuworker.data.indexing.build_index`, the same on all hosts.
        pipeline: Records to arrays.
        start: Where an earlier run stopped; None begins at the beginning.
        storage: How bytes are read.
        depth: Calls of the pipeline that are made ahead, which bounds memory; it never changes the order.
        threads: Calls of the pipeline at the same time; None: as many as the pipeline likes.
        budget_bytes: Decoded bytes of units kept in RAM; also those of documents from a cache that is not mapped.
        accept_changed_data: Resume although files, tokenizer or layout changed.
        formats: Further formats by name, for an index over rows that a program holds itself.

    Raises:
        InputError: The data cannot fill one batch, or the hosts cannot share the lanes.
        DataError: ``start`` belongs to other data.
    """

    def __init__(
        self,
        job: DataJob,
        identity: Host,
        index: Index,
        pipeline: Pipeline,
        start: Cursor | None = None,
        *,
        storage: Storage | None = None,
        depth: int = _DEPTH,
        threads: int | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        accept_changed_data: bool = False,
        formats: Mapping[str, UnitFormat] | None = None,
    ) -> None:
        self.plan: DataPlan = make_data_plan(job, index, start)
        now = Cursor.start(self.plan, {**index.fingerprints, **pipeline.fingerprint})
        if start is not None:
            faults = start.check(now)
            if faults and not accept_changed_data:
                raise DataError(faults)
            now = now.after(start.step, start.lanes)
        self.cursor: Cursor = now
        self._index = index
        self.counters = Counters()
        self._starved_seconds = 0.0
        self._batches = 0
        self._bad: Counter[str] = Counter()
        self._unlearnable = 0
        self._next: HostBatch | None = None
        self._error: BaseException | None = None
        storage = storage or Storage()
        reader = UnitReader(index, storage, self.counters, budget_bytes=budget_bytes, formats=formats)
        self._tokenising = make_tokenising(
            pipeline, reader, index, self.counters, storage=storage, budget_bytes=budget_bytes
        )
        making = _making(
            Work(
                data=job.data,
                plan=self.plan,
                index=index,
                lanes=self.plan.lanes_of(identity.host_rank),
                reader=reader,
                pipeline=pipeline,
                tokenising=self._tokenising,
                counters=self.counters,
                start=now,
            )
        )
        workers = Workers(threads or int(getattr(pipeline, "calls_at_once", _THREADS)), "tokenise")
        threads_ahead = _Ahead(making, reader, workers, depth, _batches_ahead(self.plan))
        self._ready = threads_ahead.ready
        self._stop = threads_ahead.stop
        # Not a method of self: the threads must not keep a loader alive that nobody holds any more.
        self._finalize = weakref.finalize(self, threads_ahead.close)
        threads_ahead.start()

    def __iter__(self) -> Iterator[HostBatch]:
        return self

    def __next__(self) -> HostBatch:
        """Return the next batch.

        Raises:
            StopIteration: All steps of the plan were delivered.
            WorkerError: Whatever went wrong while the batch was made, in whichever thread; again on every further call.
        """
        batch = self.peek()
        if batch is None:
            raise StopIteration
        self._next = None
        self.cursor = batch.cursor
        self._batches += 1
        self._bad.update(bad.reason for bad in batch.bad)
        self._unlearnable += batch.unlearnable
        return batch

    def peek(self) -> HostBatch | None:
        """Return the next batch without taking it, waiting for it; None at the end.

        Raises:
            WorkerError: As ``next``.
        """
        started = time.perf_counter()
        try:
            while self._next is None:
                if self.cursor.step >= self.plan.num_steps:
                    return None
                if self._error is not None:
                    raise self._error
                self._take(self._ready.get())
            return self._next
        finally:
            self._starved_seconds += time.perf_counter() - started

    def _take(self, found: HostBatch | BaseException | None) -> None:
        if self._stop.is_set() or found is None:
            found = DataError([Fault("loader", "it is closed", "an open one", "make a new one from its cursor")])
        if isinstance(found, BaseException):
            self._error = found
        else:
            self._next = found

    @property
    def is_ready(self) -> bool:
        """Whether the next batch can be had without waiting."""
        if self._next is None and self._error is None:
            with contextlib.suppress(queue.Empty):
                self._take(self._ready.get_nowait())
        return self._next is not None

    @property
    def failure(self) -> BaseException | None:
        """The error that the consumer will meet after the batches that are ready, if it is known already."""
        return self._error

    def stats(self) -> LoaderStats:
        """Return what every stage has done so far."""
        return LoaderStats(
            stages=self.counters.snapshot(),
            queue_fill=self._ready.qsize() / self._ready.maxsize,
            starved_seconds=self._starved_seconds,
            batches=self._batches,
            bad=dict(self._bad),
            unlearnable=self._unlearnable,
            cache=self._tokenising.cache_counters,
        )

    def shuffle_quality(self) -> ShuffleQuality | None:
        """Return how well the epochs are shuffled, the same on all hosts; a fraction of a second of arithmetic."""
        return shuffle_quality(self.plan, self._index) if self.plan.shuffled else None

    def close(self) -> None:
        """Stop all threads and let go of all memory; further batches are refused."""
        self._finalize()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _making(work: Work) -> Making:
    """Return how batches of the plan's layout are made."""
    if work.plan.packing == "none":
        return RowMaking(work)
    if work.plan.packing == "stream":
        return StreamMaking(work)
    if work.plan.is_estimate:
        hint = "call tpuworker.data.measuring.measured(...) and give the loader the index it returns"
        raise DataError([Fault("index", "no token counts", "those that exact packing needs", hint)])
    return PackedMaking(work)


def _batches_ahead(plan: DataPlan) -> int:
    """Return how many batches are written ahead: few, so that their memory stays in the CPU's cache."""
    most_bytes = plan.rows_per_host * plan.max_length * _MOST_ARRAYS * np.dtype(np.int32).itemsize
    return max(_FEWEST_AHEAD, min(_MOST_AHEAD, _AHEAD_BYTES // most_bytes))


class _Ahead:
    """The threads behind a loader: one reads, some tokenise, one writes batches; bounded queues keep the order."""

    def __init__(self, making: Making, reader: UnitReader, workers: Workers, depth: int, num_ready: int) -> None:
        self.ready: queue.Queue[HostBatch | BaseException | None] = queue.Queue(maxsize=num_ready)
        self.stop = threading.Event()
        self._made: queue.Queue[Future[Made] | None] = queue.Queue(maxsize=depth)
        self._making, self._reader, self._workers = making, reader, workers
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("read", self._read), ("write", self._write))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads and wait a moment for them: a thread inside Arrow at interpreter exit can abort it."""
        deadline = time.monotonic() + _EXIT_SECONDS
        self.stop.set()
        self._workers.stop()
        self._reader.close()
        _end(self._made)
        _end(self.ready)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._workers.join(deadline)
        self._reader.join(deadline)

    def _read(self) -> None:
        try:
            for piece in self._making.pieces():
                started = time.perf_counter()
                if not self._put(self._made, self._workers.submit(self._making.make, piece)):
                    return
                self._making.counters.add("read", stall_seconds=time.perf_counter() - started)
            ended = "the rows ended before the last step of the plan; this is a fault of the loader"
            error: BaseException = RuntimeError(ended)  # met only by a consumer that would wait for ever
        except BaseException as raised:  # whatever it is, the consumer has to meet it
            error = raised
        last: Future[Made] = Future()
        last.set_result(Made(error=error))
        self._put(self._made, last)

    def _write(self) -> None:
        """Write batches up to the first error: nothing behind it can be delivered."""
        error: BaseException | None = None
        try:
            while error is None and (coming := self._made.get()) is not None:
                made = coming.result()
                batches = iter(made.batches) if made.documents is None else self._making.batches(made.documents)
                for batch in batches:
                    if not self._put(self.ready, batch):
                        return
                error = made.error
        except BaseException as raised:  # whatever it is, the consumer has to meet it
            error = raised
        if error is not None:
            self._put(self.ready, error)

    def _put(self, waiting: queue.Queue[Item], item: Item) -> bool:
        while not self.stop.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(item, timeout=_POLL_SECONDS)
                return True
        return False


def _end(waiting: queue.Queue[Any]) -> None:
    """Let go of what is in a queue, and wake whoever waits for more."""
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()
    with contextlib.suppress(queue.Full):
        waiting.put_nowait(None)
