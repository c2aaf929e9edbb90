"""Batches of a stream in its own order: every reader reads it whole and keeps its part, so all have equal steps."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from tpuworker.api.columns import as_column
from tpuworker.api.recipe import Recipe, RowPipeline, Streamed
from tpuworker.api.world import World
from tpuworker.data.batches import Arrays
from tpuworker.errors import DataError, Fault, InputError

_DEPTH = 4
_POLL_SECONDS = 0.1
_EXIT_SECONDS = 0.8
_FAULTS_SHOWN = 20
#: Stages of ``datasets`` whose own state brings back the very next row. A shuffle buffer's does not (its rows are lost,
#: huggingface/datasets#7901), so such a stream is read again from its start.
_EXACT_STAGES = frozenset(
    {
        "ArrowExamplesIterable",
        "ExamplesIterable",
        "FilteredExamplesIterable",
        "FormattedExamplesIterable",
        "MappedExamplesIterable",
        "RebatchedArrowExamplesIterable",
        "SelectColumnsIterable",
        "SkipExamplesIterable",
        "TakeExamplesIterable",
    }
)


@dataclass(frozen=True)
class StreamPlace:
    """Where a pass over a stream stands: small, and equal on all readers, since all read the same rows.

    Attributes:
        epoch: Epoch of the pass.
        step: Global batches that are done in it.
        global_batch_size: Rows of one.
        anchor: State of the ``datasets`` stream after them, where it is exact; None: read again from the start.
        fingerprints: What batches are made of, by name.
    """

    kind: ClassVar[str] = "stream"
    epoch: int
    step: int
    global_batch_size: int
    anchor: Mapping[str, Any] | None
    fingerprints: Mapping[str, str]

    def to_json(self) -> str:
        """Return the place as one line of JSON, keys sorted."""
        return json.dumps({"kind": self.kind, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StreamPlace:
        """Return the place that :meth:`to_json` wrote.

        Raises:
            DataError: It is none.
        """
        try:
            content = json.loads(text)
            del content["kind"]
            return cls(**content)
        except (ValueError, TypeError, KeyError) as error:
            raise DataError([Fault("state", f"{text[:60]!r} ({error})", "what state_dict() returned")]) from error

    def check(self, against: StreamPlace) -> list[Fault]:
        """Return every way in which this place belongs to other data or batches than ``against``."""
        pairs = {"global batch size": (self.global_batch_size, against.global_batch_size)}
        prints = {
            name: (self.fingerprints.get(name, "nothing"), against.fingerprints.get(name, "nothing"))
            for name in dict.fromkeys([*self.fingerprints, *against.fingerprints])
        }
        return [
            Fault(f"state at step {self.step}: {name}", str(now), f"{before}, as in the run that is resumed")
            for name, (before, now) in {**pairs, **prints}.items()
            if before != now
        ]


@dataclass(frozen=True)
class StreamBatch:
    """One reader's part of a global batch.

    Attributes:
        arrays: Name to int32 [batch_size, max_length].
        cursor: The place after it.
    """

    arrays: Arrays
    cursor: StreamPlace


@dataclass(frozen=True)
class StreamReader:
    """Opens passes over the stream of a recipe.

    A stream has one order, so one thread reads it and calls the tokenizer, which has threads of its own.

    Attributes:
        recipe: What is read and how.
        world: Which reader this is.
        batch_size: Rows of this reader's batch.
        pipeline: Records to arrays.
    """

    recipe: Recipe
    world: World
    batch_size: int
    pipeline: RowPipeline

    @property
    def global_batch_size(self) -> int:
        """Rows of a global batch."""
        return self.world.world_size * self.batch_size

    def begin(self, epoch: int) -> StreamPlace:
        """Return the place before the first batch of an epoch."""
        origin = self.recipe.origin
        names = "+".join(origin.names) if isinstance(origin, Streamed) else ""
        return StreamPlace(epoch, 0, self.global_batch_size, None, {"column": names, **self.pipeline.fingerprint})

    def open(self, place: StreamPlace) -> StreamPass:
        """Return the batches from a place on."""
        return StreamPass(self, place)

    def batches(self, place: StreamPlace) -> Iterator[StreamBatch]:
        """Yield the batches from a place on, in the calling thread.

        Raises:
            InputError: The stream has less than one global batch.
            DataError: A bad record, or whatever the stream raises.
        """
        steps_per_call = 1
        group: list[Any] = []
        places: list[StreamPlace] = []
        for table, after in self._tables(place):
            group.append(table.slice(self.world.rank * self.batch_size, self.batch_size))
            places.append(after)
            if len(group) == steps_per_call:
                yield from self._made(group, places)
                group, places = [], []
                # The first batch waits for nothing else; then as many at once as the tokenizer likes.
                steps_per_call = max(1, self.pipeline.records_per_call // self.batch_size)
        if group:
            yield from self._made(group, places)

    def _tables(self, place: StreamPlace) -> Iterator[tuple[Any, StreamPlace]]:
        """Yield global batches as Arrow tables with the place after each; what is no whole one at the end is left."""
        origin = self.recipe.origin
        assert isinstance(origin, Streamed)
        stream = origin.stream.with_format("arrow")
        stream.set_epoch(place.epoch)
        is_exact = has_exact_state(stream)
        to_skip = place.step
        if place.anchor is not None and is_exact:
            stream.load_state_dict(dict(place.anchor))
            to_skip = 0
        now = replace(place, step=place.step - to_skip)
        for table in stream.iter(batch_size=self.global_batch_size):
            if table.num_rows < self.global_batch_size:
                if not now.step:
                    found = f"a stream of {table.num_rows:,} rows"
                    wanted = f"one global batch, {self.global_batch_size:,} rows"
                    raise InputError([Fault("dataset", found, wanted, "lower batch_size")])
                return
            now = replace(now, step=now.step + 1, anchor=stream.state_dict() if is_exact else None)
            if now.step > place.step:
                yield table, now

    def _made(self, tables: list[Any], places: list[StreamPlace]) -> Iterator[StreamBatch]:
        origin = self.recipe.origin
        assert isinstance(origin, Streamed)
        column = as_column(pa.concat_tables(tables, promote_options="permissive"), origin.names)
        documents = self.pipeline.encode(column)
        found = {bad.row: f"{bad.reason} {bad.detail}".rstrip() for bad in documents.bad}
        self._refuse_bad({int(row): "null" for row in np.flatnonzero(column.is_null())} | found, places)
        for made, place in zip(self.pipeline.padded(documents), places, strict=True):
            yield StreamBatch(made.arrays, place)

    def _refuse_bad(self, bad: Mapping[int, str], places: list[StreamPlace]) -> None:
        if not bad or self.recipe.data.on_bad_record == "mask":
            return
        faults = []
        for row, reason in list(bad.items())[:_FAULTS_SHOWN]:
            step, place = divmod(row, self.batch_size)
            first = (places[step].step - 1) * self.global_batch_size + self.world.rank * self.batch_size
            hint = "set on_bad_record to 'mask'"
            faults.append(Fault(f"dataset, row {first + place + 1}", reason, "a sound record", hint))
        raise DataError(faults)


class StreamPass:
    """Batches of a stream made ahead by one thread, whose errors reach the consumer.

    Args:
        reader: What makes them.
        place: Where to begin.
    """

    def __init__(self, reader: StreamReader, place: StreamPlace) -> None:
        self._made: queue.Queue[StreamBatch | BaseException | None] = queue.Queue(maxsize=_DEPTH)
        self._stop = threading.Event()
        self._end: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(reader, place), name="stream", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamBatch:
        """Return the next batch.

        Raises:
            StopIteration: The stream has no further whole global batch.
            Exception: Whatever was raised while it was read, again on every further call.
        """
        if self._end is None:
            made = self._made.get()
            if isinstance(made, StreamBatch):
                return made
            self._end = StopIteration() if made is None else made
        raise self._end

    def close(self) -> None:
        """Stop the thread and wait a moment for it."""
        self._stop.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._made.get_nowait()
        self._end = self._end or RuntimeError("the pass is closed")
        self._thread.join(_EXIT_SECONDS)

    def _run(self, reader: StreamReader, place: StreamPlace) -> None:
        end: BaseException | None = None
        try:
            for batch in reader.batches(place):
                if not self._put(batch):
                    return
        except BaseException as error:  # whatever it is, the consumer has to meet it
            end = error
        self._put(end)

    def _put(self, made: StreamBatch | BaseException | None) -> bool:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._made.put(made, timeout=_POLL_SECONDS)
                return True
        return False


def has_exact_state(stream: Any) -> bool:
    """Say whether a stream's own state brings back the very next row: every stage of it is known to."""
    stage = getattr(stream, "_ex_iterable", None)
    while stage is not None:
        if type(stage).__name__ not in _EXACT_STAGES:
            return False
        stage = getattr(stage, "ex_iterable", None)
    return True
