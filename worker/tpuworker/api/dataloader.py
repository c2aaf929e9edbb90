"""torch loaders: batches of one shape, the same number on every rank, resumable at any of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader

from tpuworker.api.engine import EngineChoice
from tpuworker.api.feed import Feed, agreed
from tpuworker.api.meeting import meeting_of
from tpuworker.api.origins import Named
from tpuworker.api.passes import Batches, Rows
from tpuworker.api.recipe import Indexed, Recipe, Streamed
from tpuworker.api.refusals import in_arguments, refuse
from tpuworker.api.streaming import StreamingDataset
from tpuworker.api.tensors import Tensors, to_long
from tpuworker.api.text import text_recipe, usable_max_length
from tpuworker.api.token_stream import ARRAYS, TokenStream
from tpuworker.api.tokens_recipe import tokens_recipe
from tpuworker.api.training_datasets import PretrainDataset
from tpuworker.api.world import find_world


class BatchLoader(Batches, DataLoader[Tensors]):  # type: ignore[misc]
    """What the loader functions return: a ``DataLoader`` whose batches come from the engine's threads.

    ``batch_size``, ``drop_last`` (True), ``pin_memory`` (False) and ``num_workers`` read as those of any loader; there
    are never worker processes. An exception anywhere in it is raised in the loop. It follows the protocol of
    torchdata's ``StatefulDataLoader``: ``state_dict`` after a batch, ``load_state_dict`` in a new process, and the loop
    goes on with the next batch, also on another number of ranks with the same global batch.

    Args:
        dataset: The dataset as the caller has it, for ``loader.dataset``.
        feed: What makes the batches.
        num_workers: Threads that were asked for.

    Raises:
        DataError: While iterating: a bad record under ``fail``, with file and row; a row of another length.

    Examples:
        >>> stream = create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8)
        >>> loader = create_dataloader(stream, batch_size=16)
        >>> len(loader), loader.drop_last, loader.epoch
        (6, True, 0)
        >>> batches = iter(loader)
        >>> used, following = next(batches), next(batches)
        >>> loader.load_state_dict(loader.state_dict(num_batches=1))
        >>> next(iter(loader))["input_ids"].equal(following["input_ids"])
        True
    """

    def __init__(self, dataset: Any, feed: Feed, num_workers: int) -> None:
        super().__init__(dataset, batch_size=feed.batch_size, drop_last=True, pin_memory=False, num_workers=0)
        self.num_workers = num_workers
        self._feed = feed

    def __iter__(self) -> Iterator[Tensors]:
        """Return a pass over an epoch: name to int64 [batch_size, max_length]; a whole pass moves to the next epoch."""
        return map(to_long, self._feed)


def create_dataloader(
    dataset: Any,
    batch_size: int,
    world_size: int | None = None,
    rank: int | None = None,
    num_workers: int = 0,
    *,
    drop_last: bool = True,
    shuffle: bool = False,
    seed: int = 42,
    buffer_size: int | Literal["auto"] = "auto",
    pin_memory: bool = False,
) -> BatchLoader:
    """Return a loader of this rank's batches: fixed shape, equal number on every rank, exact resume.

    Args:
        dataset: From :func:`create_streaming_dataset`, a :class:`StreamingDataset`, :class:`PretrainDataset` or
            :class:`ConversationDataset`, or a ``datasets`` object with ``input_ids`` (in memory or streaming).
        batch_size: Rows of this rank's batch. The global batch is ``world_size`` times as many.
        world_size: Ranks. Default: the dataset's, else what torch_xla, torch.distributed or the environment says.
        rank: Which of them this is.
        num_workers: Threads that tokenise, 0 for the usual number. Never processes; refused where torch_xla is
            installed.
        drop_last: Only True: a shorter last batch is another shape, so it is compiled anew, and ranks would differ.
        shuffle: Permute rows, anew in each epoch. For data of known length that has no order of its own.
        seed: Key of that permutation.
        buffer_size: Rows that are open for it at once, over all ranks.
        pin_memory: Only False: TPUs do not read pinned memory.

    Returns:
        A :class:`BatchLoader` of dicts: ``input_ids``, ``attention_mask`` and, where the dataset has them, ``labels``;
        int64 [batch_size, max_length].

    Raises:
        SpecError: An argument as above, with the reason.
        InputError: Fewer rows than one global batch; no ``input_ids``.
        IdentityError: It cannot be said which rank this is.
        DataError: Ranks that can talk have other data, or another order.

    Examples:
        >>> from datasets import Dataset
        >>> rows = Dataset.from_dict({"input_ids": [[1, 2, 3]] * 10})
        >>> for batch in create_dataloader(rows, batch_size=4):
        ...     print({name: tuple(tensor.shape) for name, tensor in batch.items()})
        {'input_ids': (4, 3), 'attention_mask': (4, 3)}
        {'input_ids': (4, 3), 'attention_mask': (4, 3)}
    """
    _judge_loading(num_workers, drop_last=drop_last, pin_memory=pin_memory)
    recipe = _recipe_of(dataset)
    if shuffle:
        _judge_shuffle(recipe, dataset)
        with in_arguments():
            recipe = recipe.shuffled(seed, buffer_size)
    said = world_size is not None or rank is not None
    world = find_world(world_size, rank) if said or not isinstance(dataset, Rows) else dataset.world
    feed = agreed(meeting_of(world, "torch"), lambda: Feed(recipe, world, batch_size, threads=num_workers))
    return BatchLoader(_as_torch(dataset), feed, num_workers)


def create_deterministic_dataloader(  # noqa: PLR0917 (the signature is what programs have)
    name: Any,
    split: str,
    batch_size: int,
    tokenizer: Any,
    seed: int,
    epoch: int,
    *,
    max_length: int | None = None,
    buffer_size: int | Literal["auto"] = "auto",
    text_column: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    data_dir: str | Path | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    num_workers: int = 0,
    engine: EngineChoice = "reference",
) -> BatchLoader:
    """Return a loader over one epoch whose order is a pure function of the data, ``seed`` and ``epoch``.

    Two runs with both equal give the same global batches on any number of ranks and threads, today and with other
    versions of every library; either of them different, and the order is another. (They are one key, not a sum: seed 1
    in epoch 2 is not seed 2 in epoch 1.) Every pass over the loader is this epoch.

    Args:
        name: As for :func:`create_streaming_dataset`, streams excepted: their order is their own.
        split: Split of a name.
        batch_size: Rows of this rank's batch.
        tokenizer: Of ``transformers``, with a fast form; or the path or hub name of one.
        seed: Key of the order.
        epoch: From 0.
        max_length: Tokens of a row. Default: the tokenizer's ``model_max_length``, if it is a length.
        buffer_size: Rows open for shuffling at once, over all ranks; ``auto`` fits it to the data.
        text_column: Column of the texts. Default: "text", else "data".
        config: Configuration of a hub dataset.
        revision: Commit, tag or branch of a hub dataset.
        data_dir: Where TFDS prepared a dataset.
        world_size: Ranks. Default: what torch_xla, torch.distributed or the environment says.
        rank: Which of them this is.
        num_workers: As for :func:`create_dataloader`.
        engine: As for :func:`create_streaming_dataset`.

    Returns:
        A :class:`BatchLoader` of ``input_ids`` and ``attention_mask``, int64 [batch_size, max_length]. Its
        ``load_state_dict`` refuses a state of another epoch.

    Raises:
        SpecError: An argument that does not fit, with the reason; no usable length.
        InputError: No such data or column, or fewer rows than one global batch.
        IdentityError: It cannot be said which rank this is.
        DataError: Ranks that can talk have other data, or another order.

    Examples:
        >>> def first(epoch):
        ...     loader = create_deterministic_dataloader(
        ...         "corpus/*.parquet", "train", 4, "tokenizer", seed=1, epoch=epoch, max_length=8
        ...     )
        ...     return next(iter(loader))["input_ids"].tolist()
        >>> first(epoch=2) == first(epoch=2) != first(epoch=3)
        True
    """
    _judge_loading(num_workers)
    world = find_world(world_size, rank)
    meeting = meeting_of(world, "torch")
    with in_arguments():
        recipe = text_recipe(
            name,
            Named(split, config, revision, None if data_dir is None else str(data_dir)),
            tokenizer,
            task="text",
            max_length=usable_max_length(tokenizer, max_length),
            arrays=ARRAYS,
            column=text_column,
            shuffle=(seed, buffer_size),
            engine=engine,
            meeting=meeting,
        )
    if isinstance(recipe.origin, Streamed):
        refuse("name", "a stream, whose order is its own", "a name or a dataset of known length")
    feed = agreed(meeting, lambda: Feed(recipe, world, batch_size, threads=num_workers, epoch=epoch))
    return BatchLoader(_as_torch(TokenStream(recipe, world)), feed, num_workers)


def runs_with_torch_xla() -> bool:
    """Whether torch_xla is installed: whatever is imported first, the answer must be the same."""
    return importlib.util.find_spec("torch_xla") is not None


def _judge_loading(num_workers: int, *, drop_last: bool = True, pin_memory: bool = False) -> None:
    if num_workers < 0:
        refuse("num_workers", str(num_workers), "0, or a number of threads")
    if num_workers and runs_with_torch_xla():
        hint = (
            "threads of this process read and tokenise ahead already; worker processes forked beside the TPU runtime "
            "and the tokenizer's threads hang"
        )
        refuse("num_workers", f"{num_workers} under torch_xla", "0", hint)
    if not drop_last:
        hint = "a shorter last batch is another shape: XLA compiles it anew, and ranks would differ in their steps"
        refuse("drop_last", "False", "True", hint)
    if pin_memory:
        refuse("pin_memory", "True", "False", "pinned memory serves CUDA copies; TPUs do not read it")


def _judge_shuffle(recipe: Recipe, dataset: Any) -> None:
    if isinstance(dataset, TokenStream | StreamingDataset) or not isinstance(recipe.origin, Indexed):
        hint = "give seed and buffer_size to create_streaming_dataset, or call .shuffle() of the datasets stream"
        refuse("shuffle", "True over a stream, which has an order of its own", "False", hint)


def _recipe_of(dataset: Any) -> Recipe:
    if isinstance(dataset, TokenStream | StreamingDataset | PretrainDataset):
        return dataset.recipe
    with in_arguments():
        return tokens_recipe(dataset, Named(), ARRAYS)


def _as_torch(dataset: Any) -> Any:
    """Return what torch's loader may hold as its dataset without asking for its length."""
    return StreamingDataset(dataset) if isinstance(dataset, TokenStream) else dataset


__all__ = ["BatchLoader", "create_dataloader", "create_deterministic_dataloader"]
