"""What everything that iterates over a feed has: epochs, and a state that stands for what was handed out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tpuworker.api.feed import Feed
from tpuworker.api.recipe import Recipe
from tpuworker.api.world import World


class Passes:
    """Passes over a feed. A whole pass moves on to the next epoch, which has an order of its own.

    ``state_dict`` and ``load_state_dict`` are the Stateful protocol of torch.distributed.checkpoint and of torchdata's
    ``StatefulDataLoader``; the state is JSON, as Orbax's ``JsonSave`` takes it.
    """

    _feed: Feed

    @property
    def epoch(self) -> int:
        """Epoch of the pass that runs, or of the next one, from 0."""
        return self._feed.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of another epoch.

        Raises:
            SpecError: A loader that was made for one epoch, or a state of another epoch that waits to be gone on with.

        Examples:
            >>> stream = create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8)
            >>> stream.set_epoch(3)
            >>> stream.epoch
            3
        """
        self._feed.set_epoch(epoch)

    def state_dict(self, num_batches: int | None = None) -> dict[str, Any]:
        """Return the state after the batch (or row) handed out last: a small dict of text, equal on all ranks.

        Args:
            num_batches: State after so many of this pass instead, where something between this and the training step
                reads ahead (``MpDeviceLoader`` by dozens of batches). Not for streams. Default: those handed out.

        Raises:
            SpecError: ``num_batches`` of a stream, or more than an epoch has.

        Examples:
            >>> stream = create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8)
            >>> row = next(iter(stream))
            >>> json.loads(stream.state_dict()["data"])["step"]
            1
        """
        return self._feed.state_dict(num_batches)

    def load_state_dict(self, state: Mapping[str, Any], *, accept_changed_data: bool = False) -> None:
        """Go on where a state was taken, also on another number of ranks with the same global batch.

        Args:
            state: From :meth:`state_dict`.
            accept_changed_data: Go on although rows, tokenizer or layout are not those of then. Default: refuse.

        Raises:
            DataError: No such state, or one of other data, with every difference.

        Examples:
            >>> first, second = (
            ...     create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8) for _ in range(2)
            ... )
            >>> rows = iter(first)
            >>> _ = next(rows)
            >>> second.load_state_dict(first.state_dict())
            >>> next(rows)["input_ids"].tolist() == next(iter(second))["input_ids"].tolist()
            True
        """
        self._feed.load_state_dict(state, accept_changed_data=accept_changed_data)

    @property
    def failure(self) -> BaseException | None:
        """What the last pass failed with, or None.

        For loops over something that stands between and keeps errors to itself: a ``MpDeviceLoader`` whose source
        raises ends as if the epoch were over.
        """
        return self._feed.failure

    def close(self) -> None:
        """Stop the threads of a pass that was left early; they also end with the process."""
        self._feed.close()


class Batches(Passes):
    """Passes over this rank's batches."""

    @property
    def world(self) -> World:
        """Which reader of how many this is."""
        return self._feed.world

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank.

        Raises:
            TypeError: A stream does not tell how long it is.
        """
        return self._feed.num_steps


class Rows(Passes):
    """Passes over this reader's rows: floor(rows / world_size) on every reader, and no row goes to two of them.

    Attributes:
        recipe: What is read and how.
        world: Which reader this is.
    """

    recipe: Recipe
    world: World

    @cached_property
    def _feed(self) -> Feed:  # type: ignore[override] # made when it is first asked for
        return Feed(self.recipe, self.world, 1)

    @property
    def num_rows(self) -> int:
        """Rows this reader gets in an epoch.

        Raises:
            TypeError: A stream does not tell how long it is.
        """
        return self._feed.num_steps
