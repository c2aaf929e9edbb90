"""One reader's batches as numpy arrays: epochs, equal steps, and a state that stands for the batches handed out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import Any, Protocol, Self, SupportsIndex

from tpuworker.api.meeting import Meeting
from tpuworker.api.recipe import Indexed, Recipe, Streamed
from tpuworker.api.refusals import in_arguments, refuse
from tpuworker.api.streamed import StreamPlace, StreamReader
from tpuworker.api.world import World
from tpuworker.data.cursor import Cursor
from tpuworker.data.loader import Loader
from tpuworker.data.plan import make_data_plan
from tpuworker.errors import DataError, Fault, FaultsError
from tpuworker.tokens.engine import Int32s

Arrays = dict[str, Int32s]


class Place(Protocol):
    """Where a run stands: a cursor of the engine, or the place in a stream."""

    @property
    def step(self) -> int:
        """Batches that are done: over all epochs by the engine, of its own pass in a stream."""
        ...

    @property
    def epoch(self) -> int:
        """Epoch of the next batch."""
        ...

    def to_json(self) -> str:
        """Return it as one line."""
        ...


class Feed:
    """Iterates over one reader's part of every global batch of an epoch.

    A pass that ends moves on to the next epoch, whose order is another one; a pass that was left begins again. Every
    reader of a world has the same number of batches, all of one shape.

    Args:
        recipe: What is read and how.
        world: Which reader this is.
        batch_size: Rows of this reader's batch; a global batch is ``world.world_size`` times as many.
        threads: Calls of the tokenizer at the same time, which never change the order; 0: as many as it likes.
        epoch: Keeps every pass in this epoch; None moves on.

    Raises:
        SpecError: An argument that the engine refuses.
        InputError: Fewer rows than one global batch.
    """

    def __init__(
        self, recipe: Recipe, world: World, batch_size: int, *, threads: int = 0, epoch: int | None = None
    ) -> None:
        if not isinstance(batch_size, SupportsIndex) or isinstance(batch_size, bool) or (rows := index(batch_size)) < 1:
            refuse("batch_size", repr(batch_size), "a whole number from 1 up")
        if epoch is not None and epoch < 0:
            refuse("epoch", str(epoch), "a number from 0 up")
        self.recipe, self.world, self.batch_size = recipe, world, rows
        self._threads = threads or None
        self._fixed_epoch = epoch
        self._epoch = epoch or 0
        self._pipeline = recipe.prepare(rows)
        self._reader = StreamReader(recipe, world, rows, self._pipeline)
        self._steps_per_epoch: int | None = None
        if isinstance(recipe.origin, Indexed):
            with in_arguments():
                plan = make_data_plan(recipe.job(world.world_size, rows, 1), recipe.origin.index)
            self._steps_per_epoch = plan.steps_per_epoch
        self._place: Place = self._begin(self._epoch)
        self._loaded: Place | None = None
        self._accepts_changed_data = False
        self._is_done = False
        self._first_step = self._place.step
        self._pass: _Pass | None = None
        #: What the last pass failed with.
        self.failure: BaseException | None = None

    @property
    def epoch(self) -> int:
        """Epoch of the pass that runs, or of the next one."""
        return self._epoch

    @property
    def num_steps(self) -> int:
        """Batches of an epoch, the same on every reader.

        Raises:
            TypeError: A stream does not tell how long it is.
        """
        if self._steps_per_epoch is None:
            raise TypeError("a stream does not tell how many rows it has; count steps as they come")
        return self._steps_per_epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of another epoch.

        Raises:
            SpecError: The epoch is fixed, or a state of another epoch was loaded and not gone on with yet.
        """
        if self._fixed_epoch is not None and epoch != self._fixed_epoch:
            refuse("epoch", str(epoch), f"{self._fixed_epoch}, for which this loader was made", "make another loader")
        if self._loaded is not None:
            if epoch == self._loaded.epoch:
                return
            found = f"{epoch}, though a state in epoch {self._loaded.epoch} was loaded"
            hint = "iterate first, or leave set_epoch out: the state knows its epoch"
            refuse("epoch", found, "that epoch", hint)
        self._epoch, self._is_done = epoch, False
        self._place = self._begin(epoch)

    @property
    def facts(self) -> dict[str, str]:
        """What the batches are made of and in which order, in words: readers of one world must have the same."""
        told = json.loads(self._begin(0).to_json())
        return {**told.pop("fingerprints"), **{name: json.dumps(value) for name, value in told.items()}}

    def __iter__(self) -> Iterator[Arrays]:
        """Return a pass: name to int32 [batch_size, max_length]; a batch's memory is used again once it is let go."""
        self.close()
        start, self._loaded = self._loaded, None
        if start is None:
            self._epoch += self._is_done and self._fixed_epoch is None
            start = self._begin(self._epoch)
        self._place, self._is_done = start, False
        self._first_step, self.failure = start.step, None
        self._pass = _Pass(self)
        return self._pass

    def _delivered(self, batch: Any) -> Arrays:
        self._place = batch.cursor
        if self._steps_per_epoch is not None:
            self._is_done = self._place.step >= (self._epoch + 1) * self._steps_per_epoch
        return {name: batch.arrays[name] for name in self.recipe.arrays}

    def _ended(self) -> None:
        self._is_done, self._pass = True, None
        if isinstance(self.recipe.origin, Streamed) and self._fixed_epoch is None:
            self._place = self._begin(self._epoch + 1)

    def _open(self) -> Any:
        """Return an iterator of batches from the present place on, with ``close``."""
        if isinstance(self._place, StreamPlace):
            return self._reader.open(self._place)
        origin = self.recipe.origin
        assert isinstance(origin, Indexed)
        assert isinstance(self._place, Cursor)
        with in_arguments():
            return Loader(
                self.recipe.job(self.world.world_size, self.batch_size, self._place.epoch + 1),
                self.world,
                origin.index,
                self._pipeline,
                self._place,
                formats=origin.formats,
                threads=self._threads,
                accept_changed_data=self._accepts_changed_data,
            )

    def _begin(self, epoch: int) -> Place:
        """Return the place before the first batch of an epoch."""
        origin = self.recipe.origin
        if isinstance(origin, Streamed):
            return self._reader.begin(epoch)
        with in_arguments():
            plan = make_data_plan(self.recipe.job(self.world.world_size, self.batch_size, epoch + 1), origin.index)
        fingerprints = {**origin.index.fingerprints, **self._pipeline.fingerprint}
        return Cursor.start(plan, fingerprints).after(epoch * plan.steps_per_epoch)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after the batch handed out last, equal on all readers: plain text, a few hundred bytes.

        Args:
            num_batches: State after so many batches of this pass instead, for callers that hand batches to something
                that reads ahead (MpDeviceLoader). Not for streams.

        Raises:
            SpecError: ``num_batches`` of a stream, or more than an epoch has.
        """
        place = self._loaded or self._place
        if num_batches is None:
            return {"data": place.to_json()}
        if not isinstance(place, Cursor):
            refuse("num_batches", str(num_batches), "nothing, for a stream: its place is known only as it is read")
        most = (self._epoch + 1) * self.num_steps - self._first_step
        if not 0 <= num_batches <= most:
            refuse("num_batches", str(num_batches), f"0 to {most}, the batches of this pass")
        return {"data": place.after(self._first_step + num_batches).to_json()}

    def load_state_dict(self, state: Mapping[str, Any], *, accept_changed_data: bool = False) -> None:
        """Go on where a state was taken: the next pass begins with the batch after it.

        The number of readers may be another, if the global batch is the same. A pass that runs is over.

        Args:
            state: From :meth:`state_dict`.
            accept_changed_data: Go on although rows, tokenizer or layout are not those of then.

        Raises:
            DataError: It is no such state, or belongs to other data; with every difference.
        """
        text = state.get("data") if isinstance(state, Mapping) else None
        if not isinstance(text, str):
            raise DataError([Fault("state", f"{state!r:.80}", "what state_dict() returned")])
        origin = self.recipe.origin
        is_stream = _kind_of(text) == StreamPlace.kind
        if is_stream != isinstance(origin, Streamed):
            found, wanted = ("a stream", "rows of known number") if is_stream else ("rows of known number", "a stream")
            raise DataError([Fault("state", f"a place in {found}", f"one in {wanted}, as this loader reads")])
        if is_stream:
            place: Place = StreamPlace.from_json(text)
        else:
            place = Cursor.from_json(text)
        self._check(place, accept_changed_data)
        epoch = place.epoch
        if self._fixed_epoch is not None and epoch != self._fixed_epoch and not self._is_end(place):
            found, wanted = f"epoch {epoch}", f"epoch {self._fixed_epoch}, for which this loader was made"
            raise DataError([Fault("state", found, wanted, f"make it with epoch={epoch}")])
        self.close()
        self._loaded, self._is_done = place, False
        self._accepts_changed_data = accept_changed_data
        self._epoch = epoch if self._fixed_epoch is None else self._fixed_epoch

    def _has_more(self) -> bool:
        """Whether a loaded state does not stand behind the last batch of the only epoch there is."""
        return self._fixed_epoch is None or self._place.epoch == self._fixed_epoch

    def _is_end(self, place: Place) -> bool:
        """Whether a place is that behind the last batch of the fixed epoch: there the next epoch begins."""
        assert self._fixed_epoch is not None
        first_step = 0 if self._steps_per_epoch is None else (self._fixed_epoch + 1) * self._steps_per_epoch
        return place.epoch == self._fixed_epoch + 1 and place.step == first_step

    def _check(self, place: Place, accept_changed_data: bool) -> None:
        now: Any = self._begin(0)
        faults = place.check(now)  # type: ignore[attr-defined]
        if faults and not accept_changed_data:
            raise DataError(faults)
        if isinstance(place, Cursor):
            with in_arguments():  # lanes that these readers cannot share
                make_data_plan(
                    self.recipe.job(self.world.world_size, self.batch_size, place.epoch + 1),
                    self.recipe.origin.index,  # type: ignore[union-attr]
                    place,
                )

    def close(self) -> None:
        """Stop the threads of a pass that was left; its iterator is over."""
        left, self._pass = self._pass, None
        if left is not None:
            left.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def agreed(meeting: Meeting | None, make: Callable[[], Feed]) -> Feed:
    """Return a feed once every rank that can be asked has proved that it has the same data in the same order.

    Raises:
        DataError: Ranks differ, or another one has failed; with every difference.
    """
    if meeting is None:
        return make()
    try:
        feed = make()
    except FaultsError as error:
        meeting.agree({}, error)
        raise
    meeting.agree(feed.facts)
    return feed


class _Pass:
    """One pass of a feed; its threads start with the first batch. It never ends silently where it should go on."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._batches: Any = None
        self._is_over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Arrays:
        feed = self._feed
        if self._is_over:
            raise StopIteration
        if feed._pass is not self:
            raise RuntimeError("another pass was begun, or a state was loaded: this iterator is over, make a new one")
        if self._batches is None:
            self._batches = feed._open() if feed._has_more() else iter(())
        try:
            return feed._delivered(next(self._batches))
        except StopIteration:
            self._is_over = True
            self.close()
            feed._ended()
            raise
        except BaseException as error:
            feed.failure = error
            raise

    def close(self) -> None:
        batches, self._batches = self._batches, None
        if hasattr(batches, "close"):
            batches.close()


def _kind_of(text: str) -> str:
    try:
        return str(json.loads(text).get("kind", "cursor"))
    except (ValueError, AttributeError) as error:
        raise DataError([Fault("state", f"{text[:60]!r}", "what state_dict() returned")]) from error
