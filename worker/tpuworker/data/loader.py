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
from typing import Self

from tpuworker.data.batches import HostBatch, Made, Making, OrderedMaking, Pipeline, RowMaking, Work
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
from tpuworker.data.workers import Workers
from tpuworker.errors import DataError, Fault
from tpuworker.formats import UnitFormat
from tpuworker.storage import Storage

_DEPTH = 4
_THREADS = 2
#: A process has to be gone a second after its last batch.
_EXIT_SECONDS = 0.8
_POLL_SECONDS = 0.1


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
        depth: Calls of the pipeline that are made ahead; it bounds memory, never the order.
        threads: Pipeline calls at the same time; tokenizers let go of the interpreter lock.
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
        threads: int = _THREADS,
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
        self._depth = depth
        self.counters = Counters()
        self._starved_seconds = 0.0
        self._batches = 0
        self._bad: Counter[str] = Counter()
        self._ready: list[HostBatch] = []
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
        threads_ahead = _Ahead(making, reader, Workers(threads, "tokenise"), depth)
        self._made = threads_ahead.made
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
        self._ready.pop(0)
        self.cursor = batch.cursor
        self._batches += 1
        self._bad.update(bad.reason for bad in batch.bad)
        return batch

    def peek(self) -> HostBatch | None:
        """Return the next batch without taking it, waiting for it; None at the end.

        Raises:
            WorkerError: As ``next``.
        """
        started = time.perf_counter()
        try:
            while not self._ready:
                if self.cursor.step >= self.plan.num_steps:
                    return None
                if self._error is not None:
                    raise self._error
                self._take(self._made.get())
            return self._ready[0]
        finally:
            self._starved_seconds += time.perf_counter() - started

    def _take(self, coming: Future[Made] | None) -> None:
        if coming is None or self._stop.is_set():
            self._error = DataError([Fault("loader", "it is closed", "an open one", "make a new one from its cursor")])
            return
        made = coming.result()
        self._ready += made.batches
        self._error = made.error

    @property
    def ready_through(self) -> int:
        """Steps that can be delivered without waiting: the number of the last one that is made, plus one."""
        while not self._ready and self._error is None and self._made.queue and (first := self._made.queue[0]):
            if not first.done():
                break
            self._take(self._made.get())
        return self._ready[-1].step + 1 if self._ready else self.cursor.step

    @property
    def failure(self) -> BaseException | None:
        """The error that the consumer will meet after the batches that are ready, if it is known already."""
        return self._error

    def stats(self) -> LoaderStats:
        """Return what every stage has done so far."""
        done = sum(coming is not None and coming.done() for coming in list(self._made.queue))
        return LoaderStats(
            stages=self.counters.snapshot(),
            queue_fill=min(1.0, (done + bool(self._ready)) / self._depth),
            starved_seconds=self._starved_seconds,
            batches=self._batches,
            bad=dict(self._bad),
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


class _Ahead:
    """The threads behind a loader: one reads, some tokenise, one puts in order; queues of promises are bounded."""

    def __init__(self, making: Making, reader: UnitReader, workers: Workers, depth: int) -> None:
        self.made: queue.Queue[Future[Made] | None] = queue.Queue(maxsize=depth)
        self.stop = threading.Event()
        self._making, self._reader, self._workers = making, reader, workers
        self._coming = self.made
        self._threads = [threading.Thread(target=self._read, name="read", daemon=True)]
        if isinstance(making, OrderedMaking):
            # Not the consumer, which has a step to run: rows are written while it does.
            self._coming = queue.Queue(maxsize=depth)
            assemble = threading.Thread(target=self._assemble, args=(making,), name="assemble", daemon=True)
            self._threads.append(assemble)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads and wait a moment for them: a thread inside Arrow at interpreter exit can abort it."""
        deadline = time.monotonic() + _EXIT_SECONDS
        self.stop.set()
        self._workers.stop()
        self._reader.close()
        for waited_for in {id(each): each for each in (self._coming, self.made)}.values():
            with contextlib.suppress(queue.Empty):
                while True:
                    waited_for.get_nowait()
            with contextlib.suppress(queue.Full):
                waited_for.put_nowait(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._workers.join(deadline)
        self._reader.join(deadline)

    def _read(self) -> None:
        try:
            for piece in self._making.pieces():
                if self.stop.is_set() or not self._put(self._coming, self._workers.submit(self._making.make, piece)):
                    return
            ended = "the rows ended before the last step of the plan; this is a fault of the loader"
            error: BaseException = RuntimeError(ended)  # met only by a consumer that would wait for ever
        except BaseException as raised:  # whatever it is, the consumer has to meet it
            error = raised
        self._put(self._coming, _done(Made(error=error)))

    def _assemble(self, making: OrderedMaking) -> None:
        """Put what was made in order, and stop at the first error: nothing behind it can be delivered."""
        error: BaseException | None = None
        while error is None and (coming := self._coming.get()) is not None:
            try:
                made = making.assemble(coming.result())
            except BaseException as raised:  # whatever it is, the consumer has to meet it
                made = Made(error=raised)
            error = made.error
            if (made.batches or error is not None) and not self._put(self.made, _done(made)):
                return

    def _put(self, waiting: queue.Queue[Future[Made] | None], item: Future[Made]) -> bool:
        started = time.perf_counter()
        while not self.stop.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put(item, timeout=_POLL_SECONDS)
                if waiting is self._coming:
                    self._making.counters.add("read", stall_seconds=time.perf_counter() - started)
                return True
        return False


def _done(made: Made) -> Future[Made]:
    future: Future[Made] = Future()
    future.set_result(made)
    return future
