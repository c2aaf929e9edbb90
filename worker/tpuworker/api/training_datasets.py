"""Texts and conversations as torch datasets of training rows: map-style over known rows, iterable over a stream."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, Self

from torch.utils.data import Dataset

from tpuworker.api.columns import as_column
from tpuworker.api.engine import EngineChoice
from tpuworker.api.objects import DatasetTable
from tpuworker.api.origins import Named, is_stream
from tpuworker.api.recipe import Recipe, Streamed
from tpuworker.api.refusals import in_arguments
from tpuworker.api.streaming import TensorRows
from tpuworker.api.tensors import Tensors, to_long
from tpuworker.api.text import text_recipe
from tpuworker.api.world import World, find_world
from tpuworker.errors import DataError, Fault

ARRAYS = ("input_ids", "attention_mask", "labels")


class PretrainDataset(Dataset[Tensors]):  # type: ignore[misc]
    """Texts as rows for a language model: ``input_ids``, ``attention_mask``, ``labels``, int64 [max_length] each.

    ``labels`` are ``input_ids``, and -100 at pads. Pads are known by position, so an end token that is also the pad
    token is learnt where it ends a text. A longer text is cut on the right.

    Over a ``datasets.Dataset`` this is map-style: ``len``, ``[index]``, and batches of indices at once for torch's own
    loader. Over an ``IterableDataset`` it is an ``IterableDataset``: this reader's rows in the stream's order, with
    ``state_dict`` (see :class:`StreamedRows`). ``create_dataloader`` takes both; nothing is read before it is asked
    for.

    Args:
        tokenizer: Of ``transformers``, with a fast form; or the path or hub name of one.
        dataset: Object of ``datasets``, in memory or streaming.
        max_length: Tokens of a row.
        text_column: Column of the texts. Default: "text", else "data".
        mask_pads: False gives pads their own id as label instead of -100.
        end_token: Put the end token behind every text that is not cut, as ``task: pretrain`` of a job does. Default:
            ids as the tokenizer makes them.
        on_bad_record: ``fail``, or ``mask``: a null or a broken text is a row of pads without a label.
        engine: What makes the ids, as for :func:`create_streaming_dataset`.

    Raises:
        InputError: No such column, or no rows.
        SpecError: Arguments or a tokenizer that do not fit together.
        DataError: A column of another type. At a row: null, or no UTF-8.

    Examples:
        >>> from datasets import Dataset
        >>> texts = PretrainDataset("tokenizer", Dataset.from_dict({"text": ["row", "row number 1"]}), max_length=6)
        >>> [(row["attention_mask"].tolist(), (row["labels"] == -100).tolist().count(True)) for row in texts]
        [([1, 0, 0, 0, 0, 0], 5), ([1, 1, 1, 0, 0, 0], 3)]
    """

    recipe: Recipe

    def __new__(cls, tokenizer: Any, dataset: Any, *_: Any, **__: Any) -> Self:  # noqa: ARG004
        """Return an instance of the streamed kind where the dataset is a stream."""
        kind = _STREAMED.get(cls, cls) if is_stream(dataset) else cls
        made: Self = super().__new__(kind)
        return made

    def __init__(
        self,
        tokenizer: Any,
        dataset: Any,
        max_length: int,
        text_column: str | None = None,
        *,
        mask_pads: bool = True,
        end_token: bool = False,
        on_bad_record: Literal["fail", "mask"] = "fail",
        engine: EngineChoice = "reference",
    ) -> None:
        self._begin(
            tokenizer,
            dataset,
            task="pretrain" if end_token else "text",
            max_length=max_length,
            column=text_column,
            pad_labels="mask" if mask_pads else "keep",
            on_bad_record=on_bad_record,
            engine=engine,
        )

    def _begin(self, tokenizer: Any, dataset: Any, **options: Any) -> None:
        Dataset.__init__(self)
        with in_arguments():
            self.recipe = text_recipe(dataset, Named(), tokenizer, arrays=ARRAYS, **options)
        if isinstance(self.recipe.origin, Streamed):
            return
        self._table = DatasetTable(dataset)
        self._column = self.recipe.origin.index.sources[0].column
        self._pipelines: dict[int, Any] = {}

    def __len__(self) -> int:
        """Rows."""
        return len(self._table)

    def __getitem__(self, index: int) -> Tensors:
        """Return a row; negative numbers count from the end.

        Raises:
            IndexError: No such row.
            DataError: A bad record.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Tensors]:
        """Return several rows with one call of the tokenizer; torch's loader uses it for a batch."""
        numbers = [self._number(index) for index in indices]
        if not numbers:
            return []
        pipeline = self._pipelines.setdefault(len(numbers), self.recipe.prepare(len(numbers)))
        documents = pipeline.encode(as_column(self._table.rows(numbers), (self._column,)))
        faults = [
            Fault(f"dataset, row {numbers[bad.row]}", f"{bad.reason} {bad.detail}".rstrip(), "a sound record")
            for bad in documents.bad
        ]
        if faults and self.recipe.data.on_bad_record == "fail":
            raise DataError(faults)
        rows = to_long(next(pipeline.padded(documents)).arrays)
        return [{name: rows[name][row] for name in ARRAYS} for row in range(len(numbers))]

    def _number(self, index: int) -> int:
        number = int(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        return number % len(self)


class ConversationDataset(PretrainDataset):
    """Conversations as rows for a language model: ``input_ids``, ``attention_mask``, ``labels``, int64 [max_length].

    A record is a list of turns, each with ``role`` and ``content`` (or ``from`` and ``value``). They are written by the
    tokenizer's chat template. Where it has none, by ``tpuworker.tasks.template.FALLBACK_TEMPLATE``: a paragraph a
    turn, ``Role: content``, and the end token, if there is one, behind each of the assistant's.

    ``labels`` are ``input_ids``, and -100 at pads, which are known by position. See :class:`PretrainDataset` for what
    kind of torch dataset this is.

    Args:
        tokenizer: Of ``transformers``, with a fast form; or the path or hub name of one.
        dataset: Object of ``datasets``, in memory or streaming.
        max_length: Tokens of a row.
        conversation_column: Column of the turns. Default: "messages", else "conversations".
        mask_pads: False gives pads their own id as label instead of -100.
        loss_on: ``all`` tokens are labels, or only those the ``assistant`` writes; the others are -100 then, and the
            first rows are tokenised at once to see whether there is something to learn.
        most_unlearnable_fraction: Share of these that may have no label: an answer behind the cut has none.
        on_bad_record: ``fail``, or ``mask``: turns that are none are a row of pads without a label.
        engine: What makes the ids, as for :func:`create_streaming_dataset`.

    Raises:
        InputError: No such column, or no rows.
        SpecError: Arguments or a tokenizer that do not fit together.
        DataError: A column of another type, or too many rows with nothing to learn. At a row: turns that are none, or
            that the template refuses.

    Examples:
        >>> from datasets import Dataset
        >>> talk = [{"role": "user", "content": "row?"}, {"role": "assistant", "content": "a story"}]
        >>> chats = ConversationDataset(tokenizer, Dataset.from_dict({"messages": [talk]}), 24, loss_on="assistant")
        >>> tokenizer.decode(chats[0]["labels"][chats[0]["labels"] != -100])
        'a story<|end|>'
    """

    def __init__(
        self,
        tokenizer: Any,
        dataset: Any,
        max_length: int,
        conversation_column: str | None = None,
        *,
        mask_pads: bool = True,
        loss_on: Literal["all", "assistant"] = "all",
        most_unlearnable_fraction: float = 0.05,
        on_bad_record: Literal["fail", "mask"] = "fail",
        engine: EngineChoice = "reference",
    ) -> None:
        self._begin(
            tokenizer,
            dataset,
            task="conversation",
            max_length=max_length,
            column=conversation_column,
            pad_labels="mask" if mask_pads else "keep",
            loss_on=loss_on,
            most_unlearnable_fraction=most_unlearnable_fraction,
            on_bad_record=on_bad_record,
            engine=engine,
        )


class StreamedRows(TensorRows):
    """Rows of a stream: those of this reader, in the stream's order, floor(rows / world_size) on every reader.

    The world is what torch_xla, torch.distributed or the environment says.
    """

    @cached_property
    def world(self) -> World:  # type: ignore[override] # found when it is first asked for
        """Which reader this is."""
        return find_world()

    def __len__(self) -> int:
        """Raise TypeError: a stream does not tell how long it is."""
        raise TypeError("a stream has no len(): it does not tell how many rows it has")

    def __getitem__(self, index: int) -> Tensors:
        """Raise TypeError: a stream is read in its own order."""
        raise TypeError(f"a stream has no row {index}: it is read in its own order")


class StreamedPretrainDataset(StreamedRows, PretrainDataset):
    """A :class:`PretrainDataset` over a stream."""


class StreamedConversationDataset(StreamedRows, ConversationDataset):
    """A :class:`ConversationDataset` over a stream."""


_STREAMED: dict[type, type] = {
    PretrainDataset: StreamedPretrainDataset,
    ConversationDataset: StreamedConversationDataset,
}
