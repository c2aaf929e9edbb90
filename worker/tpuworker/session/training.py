"""What a training function receives: batches on devices, the data's state, who it is, and when to stop.

    def main(session):
        for batch in session.batches():
            loss = step(batch)
            session.report(session.step, loss)
            if session.should_stop:
                save(model, session.state_dict())

All hosts get the same number of batches, and stop at the same one: before each step they have agreed, by a vote that
costs no waiting while all are ahead of their devices, that every one of them has its batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuworker.backends import Backend, Ballot
from tpuworker.backends.consensus import settle
from tpuworker.errors import Fault, PreflightError
from tpuworker.identity import Identity
from tpuworker.layout.rows import TokenAccount, document_lengths
from tpuworker.report.lines import Reporter
from tpuworker.report.metrics import Metrics
from tpuworker.session.progress import STARVED_FRACTION, Meter
from tpuworker.signals import StopRequest
from tpuworker.spec.job import TPUJob
from tpuworker.spec.wire import EVENT_PROGRESS

if TYPE_CHECKING:
    from tpuworker.data.batches import HostBatch
    from tpuworker.data.cursor import Cursor
    from tpuworker.data.loader import Loader
    from tpuworker.preflight.verdict import Verdict
    from tpuworker.session.checkpoint import CursorStore
    from tpuworker.tokens.tokenizer import Tokenizer

#: Votes; the largest of all hosts decides.
_READY, _NOT_READY, _STOP, _FAILED = range(4)
#: Points of a curve that a page can show, and a process should hold.
_LONGEST_HISTORY = 2000
#: Bad records of this host that are shown one by one.
_BAD_ROWS_SHOWN = 20
#: Steps after which every program of a loop has been compiled: the second may compile anew for donated buffers.
_WARM_UP_STEPS = 3


class Session:
    """One host's part of a training run. Made by the worker, or by :func:`attach`.

    Attributes:
        job: The spec.
        identity: Which host this is.
        backend: The started backend: devices, sharding, exchange of bytes.
        tokenizer: Ids of special tokens and ``vocab_size``, which an embedding table has to hold.
        verdict: What preflight proved.
        args: ``spec.train.args``.
        num_steps: Steps of the job, the same on all hosts.
        history: Facts of the progress lines so far; of a long run every second one is kept, again and again.
        step: Steps delivered so far, earlier runs included.
    """

    def __init__(
        self,
        *,
        job: TPUJob,
        identity: Identity,
        backend: Backend,
        tokenizer: Tokenizer,
        verdict: Verdict,
        loader: Loader,
        make_loader: Callable[[Cursor, bool], Loader],
        store: CursorStore | None,
        stop: StopRequest,
        reporter: Reporter,
        metrics: Metrics,
    ) -> None:
        self.job = job
        self.identity = identity
        self.backend = backend
        self.tokenizer = tokenizer
        self.verdict = verdict
        self.args: dict[str, Any] = dict(job.spec.train.args)
        self.num_steps = loader.plan.num_steps
        self._loader = loader
        self._make_loader = make_loader
        self._cursor = loader.cursor
        self._store = store
        self._stop = stop
        self._reporter = reporter
        self._metrics = metrics
        self._meter = Meter(self.num_steps, loader.plan.global_batch_size, loader.plan.tokens_per_step)
        self._is_stopping = False
        self._is_iterating = False
        self._reported: tuple[int, Any, dict[str, Any]] | None = None
        self._failure: Exception | None = None
        self._steps_here = 0
        self._compiles_known = 0
        self._told_step = -1
        self._bad_rows = 0
        self._account = TokenAccount()
        self._lengths: dict[str, int] = {}
        self.history: list[dict[str, Any]] = []
        self._steps_per_second: float | None = None

    @property
    def step(self) -> int:
        """Steps delivered so far, earlier runs included; inside the loop, the number of the present one from 1."""
        return self._cursor.step

    @property
    def should_stop(self) -> bool:
        """Whether this is the last step because a host was asked to end (SIGTERM); the same on all hosts."""
        return self._is_stopping

    @property
    def is_first_host(self) -> bool:
        """Whether this is host rank 0, which writes what is written once."""
        return self.identity.host_rank == 0

    @property
    def steps_per_second(self) -> float | None:
        """Rate of the last interval, or None before the first."""
        return self._steps_per_second

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the batches that are left, on devices: name to int32 [rows, max_length], see ``Backend.put``.

        The next batch is transferred while the present step runs. All hosts yield equally often.

        Raises:
            WorkerError: Data could not be made, on any host: on every host, before the same step.
            PreflightError: A program was compiled anew and ``spec.preflight.on_recompile`` is ``fail``.
            RuntimeError: A loop over batches is running already.
        """
        if self._is_iterating:
            raise RuntimeError("session.batches() is being iterated already: finish or close that loop first")
        self._is_iterating = self._stop.is_watched = True
        try:
            yield from self._agreed_batches()
        finally:
            self._is_iterating = False

    def _agreed_batches(self) -> Iterator[dict[str, Any]]:
        self._meter.begin(self.step, self._loader.stats().starved_seconds)
        coming: tuple[HostBatch, dict[str, Any]] | None = None
        ballot: Ballot | None = None
        while self.step < self.num_steps and not self._is_stopping:
            if ballot is None or ballot() != _READY:
                coming = self._agree(coming)
            assert coming is not None
            (batch, on_devices), coming = coming, None
            ballot = None
            if batch.step + 1 < self.num_steps and not self._is_stopping:
                if self._failure is None and self._loader.is_ready:
                    coming = self._take()
                ballot = self.backend.vote(_STOP if self._stop else _READY if coming else _NOT_READY)
            self._cursor = batch.cursor
            self._tell_bad(batch)
            self._count(batch)
            yield on_devices
            del on_devices
            self._after_step()

    def _take(self) -> tuple[HostBatch, dict[str, Any]]:
        batch = next(self._loader)
        started = time.perf_counter()
        on_devices = self.backend.put(batch.arrays)
        self._loader.counters.add(
            "transfer",
            rows=len(next(iter(batch.arrays.values()))),
            num_bytes=sum(array.nbytes for array in batch.arrays.values()),
            busy_seconds=time.perf_counter() - started,
        )
        return batch, on_devices

    def _agree(self, coming: tuple[HostBatch, dict[str, Any]] | None) -> tuple[HostBatch, dict[str, Any]] | None:
        """Wait for this host's batch, then for all hosts to have theirs, or to fail or stop together."""
        if coming is None and self._failure is None:
            try:
                coming = self._take()
            except Exception as error:
                self._failure = error
        agreed = self.backend.vote(_FAILED if self._failure else _STOP if self._stop else _READY)()
        if agreed == _FAILED:
            settle(self.backend, self.identity, f"step {self.step}", self._failure)
        self._is_stopping = agreed == _STOP
        return coming

    def report(self, step: int, loss: Any = None, **values: Any) -> None:
        """Tell the log and the metrics how training goes; nothing is read from devices until a line is due.

        Args:
            step: The step that is done, counted from 1: ``session.step``.
            loss: A number or an array on devices that ``float()`` can read.
            values: Further numbers for the line.
        """
        self._reported = (step, loss, values)

    def state_dict(self) -> dict[str, Any]:
        """Return the data's state after the present step, for a checkpoint beside the weights; equal on all hosts.

        A plain dict of text, as torch.distributed.checkpoint's Stateful protocol and Orbax's JSON handler take it.
        Call it on all hosts at the same step: where documents are packed as a stream, each knows its own lanes only.
        """
        return {"cursor": self._whole_cursor().to_json()}

    def _whole_cursor(self) -> Cursor:
        if not self._cursor.lanes:
            return self._cursor
        from tpuworker.data.cursor import Cursor

        told = self.backend.exchange(f"cursor after step {self.step}", self._cursor.to_json().encode())
        return Cursor.merged([Cursor.from_json(payload.decode()) for payload in told])

    def load_state_dict(self, state: Mapping[str, Any], *, accept_changed_data: bool = False) -> None:
        """Go on where a checkpoint was made; the number of hosts may be another. Call it on all hosts, before the loop.

        Args:
            state: From :meth:`state_dict`.
            accept_changed_data: Go on although files, tokenizer or layout are not those of then.

        Raises:
            DataError: It is no such state, or belongs to other data; with every difference.
            RuntimeError: A loop over batches is running.
        """
        from tpuworker.data.cursor import Cursor

        if self._is_iterating:
            raise RuntimeError("load_state_dict() inside the loop over batches: load before it")
        cursor = Cursor.from_json(str(state["cursor"]))
        loader = self._make_loader(cursor, accept_changed_data)
        self._loader.close()
        self._loader, self._cursor = loader, loader.cursor
        self.num_steps = loader.plan.num_steps

    def save_cursor(self) -> None:
        """Write the data's state to ``checkpoint.dir``, from host rank 0; nothing if the spec names no directory.

        Call it on all hosts at the same step, as :meth:`state_dict`.
        """
        cursor = self._whole_cursor() if self._store is not None else None
        if self._store is not None and cursor is not None and self.is_first_host:
            place = self._store.save(cursor)
            self._reporter.say(f"data cursor after step {self.step} saved to {place}", step=self.step)

    def close(self) -> None:
        """Stop the loader's threads and the metrics port; tell the last step if it was not told."""
        if self._steps_here and self._told_step != self.step:
            self._tell_progress()
        self._loader.close()
        self._metrics.close()

    def _after_step(self) -> None:
        self._steps_here += 1
        self._watch_compilations()
        every = self.job.spec.checkpoint.every_steps if self.job.spec.checkpoint else None
        if every and self.step % every == 0 and not self._is_stopping:
            self.save_cursor()
        if self._steps_here == 1:
            self._meter.begin(self.step, self._loader.stats().starved_seconds)
        if self._is_due or self._steps_here == 1:
            self._tell_progress()

    @property
    def _is_due(self) -> bool:
        """Whether a progress line follows the present step."""
        return self.step % self.job.spec.train.log_every_steps == 0 or self.step == self.num_steps

    def _count(self, batch: HostBatch) -> None:
        if batch.account is not None:
            self._account += batch.account
        if self._is_due or not self._steps_here:
            lengths = np.sort(document_lengths(batch.arrays))
            if len(lengths):
                places = {"shortest": 0, "median": len(lengths) // 2, "p95": len(lengths) * 95 // 100, "longest": -1}
                self._lengths = {name: int(lengths[place]) for name, place in places.items()}

    def _tell_progress(self) -> None:
        stats = self._loader.stats()
        loss, values = self._read_report()
        progress = self._meter.read(self.step, stats.starved_seconds)
        is_measured = self._steps_here > 1
        facts: dict[str, Any] = {
            "step": progress.step,
            "num_steps": progress.num_steps,
            "loss": loss,
            "steps_per_second": progress.steps_per_second if is_measured else None,
            "rows_per_second": progress.rows_per_second if is_measured else None,
            "tokens_per_second": progress.tokens_per_second if is_measured else None,
            "eta_seconds": progress.eta_seconds if is_measured else None,
        }
        facts = {name: round(v, 4) if isinstance(v, float) else v for name, v in facts.items() if v is not None}
        said = (
            progress.sentence(loss)
            if is_measured
            else f"step {progress.step}/{progress.num_steps}" + (f"  loss {loss:.4f}" if loss is not None else "")
        )
        if stats.bad:
            facts["bad"] = dict(stats.bad)
        if stats.unlearnable:
            facts["nothing_to_learn"] = stats.unlearnable
        self._told_step = self.step
        self._steps_per_second = progress.steps_per_second if is_measured else None
        stages = {name: {"rows": s.rows, "busy_seconds": round(s.busy_seconds, 3)} for name, s in stats.stages.items()}
        facts |= {"queue_fill": round(stats.queue_fill, 3), "stages": stages}
        if self._account != TokenAccount():
            facts["tokens"] = asdict(self._account)
        if self._lengths:
            facts["lengths"] = self._lengths
        if stats.cache is not None:
            facts["cache"] = stats.cache_counts
        if self._steps_here == 1 and (quality := self._loader.shuffle_quality()) is not None:
            facts["shuffle"] = {name: round(value, 3) for name, value in asdict(quality).items()}
        self._reporter.say(said, event=EVENT_PROGRESS, **facts, **values)
        self.history.append(facts | {"starved_fraction": round(progress.starved_fraction, 3)})
        if len(self.history) > _LONGEST_HISTORY:
            del self.history[1::2]
        self._metrics.set(
            **{name: v for name, v in facts.items() if isinstance(v, int | float)},
            num_compiles=self.backend.num_compiles(),
        )
        self._metrics.set_loader(stats)
        self._metrics.set_tokens(asdict(self._account))
        if is_measured and progress.starved_fraction > STARVED_FRACTION:
            self._reporter.say(
                f"the devices waited {progress.starved_fraction:.0%} of the time for data of this host: its slowest "
                f"stage is {stats.slowest}",
                "WARNING",
                starved_fraction=round(progress.starved_fraction, 3),
                stage=stats.slowest,
            )

    def _tell_bad(self, batch: HostBatch) -> None:
        for row in batch.bad:
            self._bad_rows += 1
            if self._bad_rows <= _BAD_ROWS_SHOWN:
                detail = f": {row.detail}" if row.detail else ""
                self._reporter.say(f"bad record kept without loss: {row.place}: {row.reason}{detail}", "WARNING")
            elif self._bad_rows == _BAD_ROWS_SHOWN + 1:
                self._reporter.say("further bad records are only counted, see bad in the progress lines", "WARNING")

    def _read_report(self) -> tuple[float | None, dict[str, Any]]:
        if self._reported is None:
            return None, {}
        _, loss, values = self._reported
        return (None if loss is None else float(loss)), {name: float(value) for name, value in values.items()}

    def _watch_compilations(self) -> None:
        count = self.backend.num_compiles()
        if self._steps_here < _WARM_UP_STEPS:
            self._compiles_known = count
            return
        if count == self._compiles_known:
            return
        names = ", ".join(self.backend.compiled_since(self._compiles_known)) or "unnamed programs"
        found = f"{count - self._compiles_known} new compilations after step {self.step} ({names})"
        self._compiles_known = count
        cause = (
            "every batch kept its shape, so the cause is in the training code: an argument whose shape, type or Python "
            "value changes between steps, or a function that first runs now"
        )
        if self.job.spec.preflight.on_recompile == "fail":
            hint = f"{cause}; spec.preflight.on_recompile: warn goes on"
            self._failure = PreflightError([Fault("compilations", found, "none after the first steps", hint)])
            return
        self._reporter.say(f"{found}: {cause}", "WARNING", step=self.step, num_compiles=count)


def attach() -> Session:
    """Return the session of a program started by ``spec.train.command``, after the whole proof was given.

    Call it before any use of devices. The process then ends with the worker's exit codes, also for errors of its own.

    Raises:
        SystemExit: The job was refused; the log says why.
    """
    from tpuworker.session.running import attach_here

    return attach_here()
