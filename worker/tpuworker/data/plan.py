"""What the data will be, in numbers: rows, lanes, windows, steps, buffer; pure from the job and its index."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tpuworker.data.index import Index
from tpuworker.data.job import DataJob
from tpuworker.data.mixture import Mixture, block_counts
from tpuworker.errors import Fault, InputError
from tpuworker.layout.pieces import WINDOW_DOCUMENTS

if TYPE_CHECKING:
    from tpuworker.data.cursor import Cursor

_GIB = 1 << 30
#: What the worker needs besides data: interpreter, libraries, compiled programs, host copies of a checkpoint.
_PROCESS_BYTES = 4 * _GIB
#: Share of what is left that the buffer may take: the page cache, the queues and the user's own code need the rest.
_BUFFER_FRACTION = 0.5
_LEAST_FRACTION_OF_ROWS = 0.001
#: Rows of the data below which a buffer of so many rows is enough, by rising size.
_AUTO_ROWS = ((1_000_000, 10_000), (100_000_000, 100_000))
_AUTO_ROWS_ABOVE = 1_000_000
#: Of English prose under common vocabularies; only guesses rest on it.
_BYTES_PER_TOKEN = 4.2


@dataclass(frozen=True)
class DataPlan:
    """The numbers of a job's data.

    Attributes:
        num_rows: Rows of all sources.
        num_units: Units of all sources.
        num_lanes: Lanes of an epoch.
        num_hosts: Hosts that share them.
        global_batch_size: Rows of a step over all hosts.
        max_length: Tokens of a row.
        window_rows: Rows of a window, for each source.
        buffer_rows: Rows open at once over the whole job: lanes x window, at most the rows there are.
        buffer_bytes: Their decoded bytes, over the whole job.
        buffer_limit_bytes: RAM that one host's plan leaves for the buffer.
        buffer_rule: What decided the buffer.
        steps_per_epoch: Global batches of an epoch.
        epochs: Epochs the job asks for.
        num_steps: Global batches of the whole job.
        remainder_rows: Rows of an epoch that no batch holds (``drop``), or rows without loss that fill the last one
            (``mask``); for a mixture, rows of the sources that its epoch does not reach.
        source_counts: Places of each source in a block of the mixture; empty for one source.
        source_epochs: How often each source is passed through in the whole job.
        seed: Key of the order.
        shuffled: Whether rows are shuffled.
        remainder: The rule for the remainder.
        packing: ``exact``: rows are packed rows, counted beforehand. ``stream``: rows are documents, lanes pack them as
            they come and go on into their next epoch, steps are what the spec says.
        is_estimate: Under ``exact`` before documents were measured: rows and steps are guessed from bytes.
    """

    num_rows: int
    num_units: int
    num_lanes: int
    num_hosts: int
    global_batch_size: int
    max_length: int
    window_rows: tuple[int, ...]
    buffer_rows: int
    buffer_bytes: int
    buffer_limit_bytes: int
    buffer_rule: str
    steps_per_epoch: int
    epochs: int
    num_steps: int
    remainder_rows: int
    source_counts: tuple[int, ...]
    source_epochs: tuple[float, ...]
    seed: int
    shuffled: bool
    remainder: str
    packing: Literal["none", "exact", "stream"] = "none"
    is_estimate: bool = False

    @property
    def tokens_per_step(self) -> int:
        """Token slots of a step over the whole job, pads included."""
        return self.global_batch_size * self.max_length

    @property
    def rows_per_host(self) -> int:
        """Rows of one host's part of a batch."""
        return self.global_batch_size // self.num_hosts

    @property
    def is_mixture(self) -> bool:
        """Whether several sources are mixed."""
        return bool(self.source_counts)

    def lanes_of(self, host_rank: int) -> range:
        """Return the lanes of a host: a run, so that its rows are one piece of the global batch."""
        lanes_per_host = self.num_lanes // self.num_hosts
        return range(host_rank * lanes_per_host, (host_rank + 1) * lanes_per_host)


def make_data_plan(job: DataJob, index: Index, cursor: Cursor | None = None) -> DataPlan:
    """Return the plan of a job's data.

    Args:
        job: The job.
        index: Its index.
        cursor: Where an earlier run stopped. Its lanes and windows are kept, since they are part of the order; the
            number of hosts is the job's.

    Raises:
        InputError: Fewer rows than a batch, or lanes that the hosts cannot share.
    """
    spec = job.data
    packing: Literal["none", "exact", "stream"] = "none" if spec.layout == "pad" else spec.packing_form
    is_estimate = packing == "exact" and not index.lengths
    index = guessed(index, spec.max_length).ordered if is_estimate else index.ordered
    lanes = cursor.num_lanes if cursor else job.data.num_lanes(job.num_hosts)
    limit = buffer_limit_bytes(job)
    buffer = _buffer_rows(job, index, limit)
    if cursor:
        buffer = replace(buffer, window_rows=cursor.window_rows, rule="the run that is resumed")
    elif not buffer.window_rows:
        buffer = _with_windows(job, index, lanes, buffer, limit)
    _judge(job, index, lanes)
    whole = _Whole(job, index, lanes)
    return DataPlan(
        num_rows=index.num_rows,
        num_units=index.num_units,
        num_lanes=lanes,
        num_hosts=job.num_hosts,
        global_batch_size=spec.global_batch_size,
        max_length=spec.max_length,
        window_rows=buffer.window_rows,
        buffer_rows=(open_rows := min(index.num_rows, lanes * sum(buffer.window_rows))),
        buffer_bytes=int(open_rows * index.mean_row_bytes),
        buffer_limit_bytes=limit,
        buffer_rule=buffer.rule if spec.shuffle.order == "shuffled" else "no shuffle",
        steps_per_epoch=whole.steps_per_epoch,
        epochs=spec.epochs,
        num_steps=whole.num_steps,
        remainder_rows=whole.remainder_rows,
        source_counts=whole.counts,
        source_epochs=whole.source_epochs,
        seed=spec.shuffle.seed,
        shuffled=spec.shuffle.order == "shuffled",
        remainder=spec.remainder,
        packing=packing,
        is_estimate=is_estimate,
    )


def guessed(index: Index, max_length: int) -> Index:
    """Return an index with packed rows guessed from bytes, for plans made before a tokenizer is at hand."""
    windows = []
    for source in index.sources:
        tokens = int(source.unit_bytes.sum()) / _BYTES_PER_TOKEN
        rows = max(1, math.ceil(tokens / max_length))
        num_windows = min(rows, -(-source.num_rows // WINDOW_DOCUMENTS))
        share, extra = divmod(rows, num_windows)
        windows.append(np.array([share + (number < extra) for number in range(num_windows)], dtype=np.int64))
    nothing = np.zeros(0, dtype=np.int32)
    return replace(index, lengths=tuple(nothing for _ in index.sources), window_rows=tuple(windows))


def buffer_limit_bytes(job: DataJob) -> int:
    """Return the RAM of one host that the shuffle buffer may take, from the table of machines and the pod's own use.

    It does not depend on the number of hosts, and one host is allowed the whole buffer of the job, so the order is the
    same on any number of them.
    """
    return max(0, int((job.free_memory_bytes - _PROCESS_BYTES) * _BUFFER_FRACTION))


@dataclass(frozen=True)
class _Buffer:
    rows: int
    rule: str
    window_rows: tuple[int, ...] = ()


def _buffer_rows(job: DataJob, index: Index, limit_bytes: int) -> _Buffer:
    asked = job.data.shuffle.buffer_size
    if asked == "auto":
        rows, rule = _auto_rows(index.num_rows)
    else:
        rows, rule = asked, f"buffer_size: {asked:,}"
    fitting = int(limit_bytes / max(1.0, index.mean_row_bytes))
    return _Buffer(max(1, fitting), _ram_rule(limit_bytes)) if rows > fitting else _Buffer(rows, rule)


def _ram_rule(limit_bytes: int) -> str:
    return f"{limit_bytes / _GIB:.1f} GiB of a host's RAM"


def _auto_rows(num_rows: int) -> tuple[int, str]:
    rows, rule = _AUTO_ROWS_ABOVE, f"{_AUTO_ROWS_ABOVE:,} rows from {_AUTO_ROWS[-1][0]:,} rows"
    for below, enough in _AUTO_ROWS:
        if num_rows < below:
            rows, rule = enough, f"{enough:,} rows below {below:,}"
            break
    least = math.ceil(num_rows * _LEAST_FRACTION_OF_ROWS)
    return (least, "0.1 % of the rows") if least > rows else (rows, rule)


def _with_windows(job: DataJob, index: Index, lanes: int, buffer: _Buffer, limit_bytes: int) -> _Buffer:
    """Return the buffer with the rows of a window for each source: its share, and under ``auto`` a typical unit.

    A smaller window would be decoded with its whole unit all the same, so it would save nothing and shuffle less.
    """
    weights = np.array([source.weight for source in index.sources])
    shares = (weights / weights.sum()).tolist()
    windows, rule = [max(1, math.ceil(buffer.rows * share / lanes)) for share in shares], buffer.rule
    if job.data.shuffle.buffer_size == "auto":
        fitting = limit_bytes / max(1.0, index.mean_row_bytes) / lanes
        for number, source in enumerate(index.sources):
            typical, fits = int(np.median(source.unit_rows)), max(1, int(fitting * shares[number]))
            if windows[number] < min(typical, fits):
                windows[number] = min(typical, fits)
                rule = f"a unit in each of {lanes} lanes" if typical <= fits else _ram_rule(limit_bytes)
    return replace(buffer, window_rows=tuple(windows), rule=rule)


def _judge(job: DataJob, index: Index, lanes: int) -> None:
    batch, hosts = job.data.global_batch_size, job.num_hosts
    faults = []
    if batch % lanes or lanes % hosts:
        found = f"{lanes} lanes for {hosts} hosts and a batch of {batch}"
        hint = f"resume on a number of hosts that divides {lanes}, with the batch it began with"
        faults.append(Fault("spec.slice", found, "hosts that divide the lanes, lanes that divide the batch", hint))
    if job.data.layout == "pack" and job.data.packing_form == "stream":
        faults += _stream_faults(job, index, lanes)
    elif len(index.sources) > 1:
        least = 1 if job.data.shuffle.order == "sequential" else lanes
        faults += [
            Fault(
                f"spec.data.sources[{source.number}]",
                f"{source.num_rows:,} rows",
                f"at least one row for each of the {lanes} lanes of a mixture",
                "join it to another source, or lower shuffle.lanes",
            )
            for source in index.sources
            if source.num_rows < least
        ]
    elif index.num_rows < batch and job.data.remainder == "drop":
        hint = f"lower global_batch_size to {index.num_rows} or less, or set remainder: mask"
        faults.append(Fault("spec.data.sources", f"{index.num_rows:,} rows", f"one global batch, {batch:,}", hint))
    if faults:
        raise InputError(faults)


def _stream_faults(job: DataJob, index: Index, lanes: int) -> list[Fault]:
    faults = []
    if job.max_steps is None:
        found = "no number of steps, and documents that are packed as they are read"
        hint = "set it, or set packing.form to exact, which counts the steps of the epochs first"
        faults.append(Fault("spec.train.steps", found, "the steps of the job", hint))
    faults += [
        Fault(f"spec.data.sources[{s.number}]", f"{s.num_rows:,} rows", f"one for each of the {lanes} lanes")
        for s in index.sources
        if s.num_rows < lanes
    ]
    return faults


class _Whole:
    """The steps of the job and what they leave over."""

    def __init__(self, job: DataJob, index: Index, lanes: int) -> None:
        spec, batch = job.data, job.data.global_batch_size
        self._job = job
        rows = [source.num_rows for source in index.sources]
        if spec.layout == "pack" and spec.packing_form == "stream":
            self._stream(rows)
            return
        if len(rows) == 1:
            self.counts: tuple[int, ...] = ()
            self.steps_per_epoch = job.data.steps_per_epoch(rows[0])
            used = self.steps_per_epoch * batch
            self.remainder_rows = abs(rows[0] - used)
            self.source_epochs: tuple[float, ...] = (self.num_steps / self.steps_per_epoch,)
            return
        shuffled = spec.shuffle.order == "shuffled"
        order_lanes = lanes if shuffled else 1
        mixture = Mixture(block_counts([s.weight for s in index.sources]), spec.shuffle.seed, shuffled)
        self.counts = tuple(int(count) for count in mixture.counts)
        lengths = np.array(rows, dtype=np.int64) // order_lanes
        slots = batch // order_lanes
        if spec.mixture_stop == "first_exhausted":
            self.steps_per_epoch = mixture.places_until_first_end(lengths, order_lanes) // slots
        else:
            self.steps_per_epoch = -(-mixture.places_until_all_ended(lengths, order_lanes) // slots)
        if not self.steps_per_epoch:
            found = f"a mixture whose first source ends before one global batch of {batch:,}"
            raise InputError([Fault("spec.data.sources", found, "one batch at least", "see mixture_stop")])
        shares = np.array(self.counts) / mixture.block
        drawn = shares * self.num_steps * batch
        self.source_epochs = tuple(float(each) for each in drawn / np.array(rows))
        once = shares * self.steps_per_epoch * batch
        self.remainder_rows = int(np.maximum(0, np.array(rows) - once).sum())

    def _stream(self, rows: list[int]) -> None:
        """Lanes go round for as long as the spec says; no row is left over, and epochs show as the run goes."""
        weights = [source.weight for source in self._job.data.sources]
        self.counts = tuple(map(int, block_counts(weights))) if len(rows) > 1 else ()
        self.steps_per_epoch = self._job.max_steps or 0
        self.remainder_rows = 0
        self.source_epochs = ()

    @property
    def num_steps(self) -> int:
        """All epochs, or ``train.steps`` if that is less."""
        whole = self._job.data.epochs * self.steps_per_epoch
        limit = self._job.max_steps
        return whole if limit is None else min(whole, limit)
