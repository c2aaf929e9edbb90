"""A shuffled, tokenised stream over named data or a dataset, read by the rows of this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tpuworker.api.engine import EngineChoice
from tpuworker.api.feed import Arrays
from tpuworker.api.meeting import meeting_of
from tpuworker.api.origins import Named
from tpuworker.api.passes import Rows
from tpuworker.api.recipe import Recipe, Streamed
from tpuworker.api.refusals import in_arguments
from tpuworker.api.text import text_recipe
from tpuworker.api.world import World, find_world

ARRAYS = ("input_ids", "attention_mask")
#: Rows that a stream holds for shuffling where the caller names no number.
STREAM_BUFFER_ROWS = 10_000


class TokenStream(Rows):
    """What :func:`create_streaming_dataset` returns: rows of this reader, and the recipe of batches for loaders.

    Iterating yields ``input_ids`` and ``attention_mask``, numpy int32 [max_length] each, row by row. Every reader gets
    floor(rows / world_size) of them, no row goes to two readers, and each pass has an order of its own.
    ``StreamingDataset`` and ``create_dataloader`` take it as it is, and read whole batches.

    Args:
        recipe: What is read and how.
        world: Which reader this is.

    Raises:
        InputError: When rows are first asked for: fewer of them than readers.
        DataError: While iterating: a bad record under ``fail``, with file and row; files that changed.

    Examples:
        >>> world = {"world_size": 3, "rank": 0}
        >>> stream = create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8, **world)
        >>> stream.num_rows, stream.column_names
        (33, ['input_ids', 'attention_mask'])
    """

    def __init__(self, recipe: Recipe, world: World) -> None:
        self.recipe, self.world = recipe, world

    @property
    def column_names(self) -> list[str]:
        """Names of what a row has; the text is none of it."""
        return list(self.recipe.arrays)

    def __iter__(self) -> Iterator[Arrays]:
        """Yield one row after the other: name to int32 [max_length]."""
        for batch in self._feed:
            yield {name: array[0] for name, array in batch.items()}


def create_streaming_dataset(  # noqa: PLR0917 (the signature is what programs have)
    name: Any,
    split: str,
    tokenizer: Any,
    max_length: int,
    seed: int = 42,
    buffer_size: int | Literal["auto"] = STREAM_BUFFER_ROWS,
    *,
    text_column: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    data_dir: str | Path | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    on_bad_record: Literal["fail", "mask"] = "fail",
    engine: EngineChoice = "reference",
) -> TokenStream:
    """Stream, shuffle, shard over readers and tokenise to one length; nothing is read whole, and no text comes along.

    Args:
        name: A hub name or a directory (as ``datasets.load_dataset`` takes), a file, pattern or URL (parquet, JSON
            lines, Arrow, text; ``*`` and ``**``; local, ``hf://``, ``gs://``, ``s3://``, ``http://``), ``tfds:name``,
            or an object of ``datasets``. An ``IterableDataset`` is shuffled by ``datasets`` itself.
        split: Split of a name; files and objects have only ``train``.
        tokenizer: Of ``transformers``, with a fast form; or the path or hub name of one.
        max_length: Tokens of a row. Longer texts are cut on the right, shorter ones padded.
        seed: Key of the order, together with the epoch.
        buffer_size: Rows that are open for shuffling at once, over all readers; ``auto`` fits it to the data. More
            decoded units than RAM is planned for are mapped from local scratch, so a large buffer slows down, only.
        text_column: Column of the texts. Default: "text", else "data".
        config: Configuration of a hub dataset, the second argument of ``load_dataset``.
        revision: Commit, tag or branch of a hub dataset. Pin a commit: a branch may move before a resume.
        data_dir: Where TFDS prepared a dataset. Default: ``TFDS_DATA_DIR``, else where TFDS prepares by itself.
        world_size: Readers. Default: what torch_xla, torch.distributed or the environment says (:func:`find_world`).
        rank: Which of them this is.
        on_bad_record: ``fail``, or ``mask``: a null or a broken text is a row of pads.
        engine: What makes the ids. ``auto`` tries fastokens and gigatoken, and takes the first that proves equal to the
            reference on this tokenizer and these texts. Default: the reference, since the proof takes seconds.

    Returns:
        A :class:`TokenStream`: ``input_ids``, ``attention_mask``, int32 [max_length] a row, with ``state_dict``.

    Raises:
        InputError: No such data, or no such column; with what there is.
        SpecError: Arguments or a tokenizer that do not fit together.
        IdentityError: It cannot be said which reader this is.

    Examples:
        >>> rows = iter(create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8))
        >>> {name: (array.dtype.name, array.shape) for name, array in next(rows).items()}
        {'input_ids': ('int32', (8,)), 'attention_mask': ('int32', (8,))}
    """
    world = find_world(world_size, rank)
    with in_arguments():
        recipe = text_recipe(
            name,
            Named(split, config, revision, None if data_dir is None else str(data_dir)),
            tokenizer,
            task="text",
            max_length=max_length,
            arrays=ARRAYS,
            column=text_column,
            on_bad_record=on_bad_record,
            shuffle=(seed, buffer_size),
            engine=engine,
            meeting=meeting_of(world, "torch"),
        )
    return TokenStream(shuffled_by_itself(recipe), world)


def shuffled_by_itself(recipe: Recipe) -> Recipe:
    """Return a recipe whose stream, if it is one, shuffles with the recipe's seed and buffer."""
    shuffle = recipe.data.shuffle
    if not isinstance(recipe.origin, Streamed) or shuffle.order == "sequential":
        return recipe
    # A stream does not tell its size; this is what ``auto`` gives for the smallest data.
    buffer_rows = STREAM_BUFFER_ROWS if shuffle.buffer_size == "auto" else shuffle.buffer_size
    stream = recipe.origin.stream.shuffle(seed=shuffle.seed, buffer_size=buffer_rows)
    return replace(recipe, origin=replace(recipe.origin, stream=stream))
