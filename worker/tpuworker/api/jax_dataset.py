"""Batches as ``jax.Array``: from TFDS or any other source, tokenised here or before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tpuworker.api.engine import EngineChoice
from tpuworker.api.feed import Feed, agreed
from tpuworker.api.meeting import meeting_of
from tpuworker.api.origins import TFDS_PREFIX, Named, source_of
from tpuworker.api.passes import Batches
from tpuworker.api.refusals import in_arguments, refuse
from tpuworker.api.text import text_recipe
from tpuworker.api.tfds_table import TfdsTable, is_prepared
from tpuworker.api.token_stream import shuffled_by_itself
from tpuworker.api.tokens_recipe import tokens_recipe
from tpuworker.api.world import World, find_world

if TYPE_CHECKING:
    import jax

ARRAYS = ("input_ids", "labels")


class JaxDataset(Batches):
    """What :func:`create_jax_dataset` returns: iterates over batches of ``jax.Array``.

    A whole pass moves on to the next epoch, which has an order of its own. Every process has the same number of steps.

    Args:
        feed: What makes this process's rows.
        sharding: Where a global batch lies; None: on the default device, for a process that is alone.

    Raises:
        DataError: While iterating: a bad record, with file and row; a row of another length.

    Examples:
        >>> dataset = create_jax_dataset("corpus/*.parquet", "train", 16, tokenizer="tokenizer", max_length=8)
        >>> batches = iter(dataset)
        >>> used, following = next(batches), next(batches)
        >>> dataset.load_state_dict(dataset.state_dict(num_batches=1))
        >>> bool((next(iter(dataset))["input_ids"] == following["input_ids"]).all())
        True
    """

    def __init__(self, feed: Feed, sharding: jax.sharding.Sharding | None) -> None:
        self._feed, self.sharding = feed, sharding

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        """Return a pass: ``input_ids`` and ``labels``, int32 [batch_size x processes, max_length]."""
        return map(self._put, self._feed)

    def _put(self, arrays: Mapping[str, Any]) -> dict[str, jax.Array]:
        import jax

        if self.sharding is None:
            return {name: jax.device_put(array) for name, array in arrays.items()}
        return {
            name: jax.make_array_from_process_local_data(
                self.sharding, array, (array.shape[0] * self.world.world_size, *array.shape[1:])
            )
            for name, array in arrays.items()
        }


def create_jax_dataset(
    name: Any,
    split: str,
    batch_size: int,
    seed: int = 42,
    *,
    tokenizer: Any = None,
    max_length: int | None = None,
    text_column: str | None = None,
    end_token: bool = False,
    config: str | None = None,
    revision: str | None = None,
    buffer_size: int | Literal["auto"] = "auto",
    data_dir: str | Path | None = None,
    sharding: jax.sharding.Sharding | None = None,
    engine: EngineChoice = "reference",
) -> JaxDataset:
    """Return shuffled batches of ``input_ids`` and ``labels`` as ``jax.Array``.

    Files and rows are shuffled, anew in each epoch, and rows that do not fill a last global batch are dropped.

    Args:
        name: A prepared TFDS dataset (``tfds:name``, or just its name where TFDS finds it), anything that
            :func:`create_streaming_dataset` takes, or an object of ``datasets``.
        split: Split of a name; files and objects have only ``train``.
        batch_size: Rows of this process's batch.
        seed: Key of the order, together with the epoch.
        tokenizer: Tokenise a text column. None: the rows have ``input_ids`` of one length, and ``labels`` if they are
            not the ids themselves.
        max_length: Tokens of a row, with a tokenizer.
        text_column: Column of the texts. Default: "text", else "data".
        end_token: Put the end token behind every text that is not cut.
        config: Configuration of a hub dataset.
        revision: Commit, tag or branch of a hub dataset.
        buffer_size: Rows open for shuffling at once, over all processes; ``auto`` fits it to the data.
        data_dir: Where TFDS prepared the dataset.
        sharding: Where a global batch lies, for instance ``NamedSharding(mesh, PartitionSpec("data"))``. Default: the
            default device if this process is alone, else axis 0 over the devices of all processes, in their order.
        engine: As for :func:`create_streaming_dataset`.

    Returns:
        A :class:`JaxDataset` of ``input_ids``, ``labels``: int32 [batch_size x processes, max_length]; ``labels`` are
        -100 at pads.

    Raises:
        InputError: No such data or column, rows of no tokens, or fewer rows than one global batch.
        SpecError: Arguments that do not fit together.
        IdentityError: JAX and the environment disagree on the number of processes.
        DataError: Processes have other data, or another order.

    Examples:
        >>> dataset = create_jax_dataset("corpus/*.parquet", "train", 16, tokenizer="tokenizer", max_length=8)
        >>> {name: (array.dtype.name, array.shape) for name, array in next(iter(dataset)).items()}
        {'input_ids': ('int32', (16, 8)), 'labels': ('int32', (16, 8))}
    """
    directory = None if data_dir is None else str(data_dir)
    if tokenizer is None and max_length is not None:
        refuse(
            "max_length", str(max_length), "a tokenizer with it", "rows that are tokenised already have their length"
        )
    if tokenizer is not None and max_length is None:
        refuse("max_length", "nothing", "the tokens of a row", "a tokenizer's own idea may be 10^30")
    world = find_world(library="jax")
    meeting = meeting_of(world, "jax")
    with in_arguments():
        rows = _rows(name, split, directory)
        if tokenizer is not None:
            assert max_length is not None
            recipe = text_recipe(
                rows,
                Named(split, config, revision),
                tokenizer,
                task="pretrain" if end_token else "text",
                max_length=max_length,
                arrays=ARRAYS,
                column=text_column,
                shuffle=(seed, buffer_size),
                engine=engine,
                meeting=meeting,
            )
        else:
            recipe = tokens_recipe(rows, Named(split, config, revision), ARRAYS, (seed, buffer_size), meeting=meeting)
    feed = agreed(meeting, lambda: Feed(shuffled_by_itself(recipe), world, batch_size))
    return JaxDataset(feed, sharding or _usual_sharding(world, batch_size))


def _rows(name: Any, split: str, data_dir: str | None) -> Any:
    """Return the rows of a TFDS name, or what the caller gave."""
    if not isinstance(name, str | Path):
        return name
    text = str(name)
    plain = text.removeprefix(TFDS_PREFIX)
    if text.startswith(TFDS_PREFIX) or data_dir is not None or (_may_be_tfds(text) and is_prepared(text, None)):
        return TfdsTable(plain, split, data_dir)
    return text


def _may_be_tfds(name: str) -> bool:
    return "hub" in source_of(name, Named()) and not Path(name).is_dir()


def _usual_sharding(world: World, batch_size: int) -> Any:
    if world.world_size == 1:
        return None
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    local = jax.local_device_count()
    if batch_size % local:
        refuse("batch_size", str(batch_size), f"a multiple of the {local} devices of a process", "or give a sharding")
    by_process = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return NamedSharding(Mesh(np.array(by_process, dtype=object), ("data",)), PartitionSpec("data"))
