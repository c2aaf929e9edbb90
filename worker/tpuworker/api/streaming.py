"""Tokenised rows of one reader as a torch ``IterableDataset`` of long tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

from tpuworker.api.origins import Named
from tpuworker.api.passes import Rows
from tpuworker.api.refusals import in_arguments
from tpuworker.api.tensors import Tensors, refuse_worker_process, to_long
from tpuworker.api.token_stream import ARRAYS, TokenStream
from tpuworker.api.tokens_recipe import tokens_recipe
from tpuworker.api.world import find_world


class TensorRows(Rows, IterableDataset[Tensors]):  # type: ignore[misc]
    """Rows as an ``IterableDataset`` of torch; torch's own loader may take it, without worker processes."""

    def __iter__(self) -> Iterator[Tensors]:
        """Yield one row after the other: name to int64 [max_length].

        Raises:
            SpecError: In a worker process of torch's own loader.
        """
        refuse_worker_process()
        for batch in self._feed:
            yield to_long({name: array[0] for name, array in batch.items()})


class StreamingDataset(TensorRows):
    """This reader's rows, one after the other: ``input_ids``, ``attention_mask``, int64 [max_length] each.

    Every reader gets floor(rows / world_size) rows and no row goes to two readers, whatever the number of files or
    shards. Rows of a ``datasets`` object keep their order; those of :func:`create_streaming_dataset` are shuffled anew
    in each pass. ``state_dict`` and ``load_state_dict`` follow the rows handed out.

    Args:
        dataset: From :func:`create_streaming_dataset`, or a ``datasets`` object (in memory or streaming) with a column
            ``input_ids`` of lists of one length, and ``attention_mask`` if it has one (else all ones).
        world_size: Readers. Default: what torch_xla, torch.distributed or the environment says.
        rank: Which of them this is.

    Raises:
        InputError: No ``input_ids``, or fewer rows than readers.
        SpecError: An object that holds no rows of one split.
        IdentityError: It cannot be said which reader this is.
        DataError: While iterating: a row of another length than the first, which would be compiled anew.

    Examples:
        >>> stream = create_streaming_dataset("corpus/*.parquet", "train", "tokenizer", max_length=8)
        >>> row = next(iter(StreamingDataset(stream, world_size=4, rank=1)))
        >>> row["input_ids"].dtype, tuple(row["input_ids"].shape)
        (torch.int64, (8,))
    """

    def __init__(self, dataset: Any, world_size: int | None = None, rank: int | None = None) -> None:
        super().__init__()
        given = world_size is not None or rank is not None
        if isinstance(dataset, TokenStream):
            self.recipe = dataset.recipe
            self.world = find_world(world_size, rank) if given else dataset.world
        else:
            self.world = find_world(world_size, rank)
            with in_arguments():
                self.recipe = tokens_recipe(dataset, Named(), ARRAYS)
