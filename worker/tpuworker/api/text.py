"""Recipes for texts and conversations: the caller's tokenizer and options become the engine's task and layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from tpuworker.api.engine import EngineChoice, first_records, proved_engine
from tpuworker.api.meeting import Meeting
from tpuworker.api.origins import Named, open_text, source_of
from tpuworker.api.recipe import Indexed, Recipe, RowPipeline, make_data_spec, shuffle_section
from tpuworker.api.refusals import refuse
from tpuworker.pipeline import make_pipeline
from tpuworker.spec.data import DataSpec, TokenizerSpec
from tpuworker.tasks.conversation import check_learnable
from tpuworker.tokens.engine import Engine
from tpuworker.tokens.resolve import find_limit, load_tokenizer, tokenizer_of
from tpuworker.tokens.tokenizer import Tokenizer

#: A "longest input" from here on is a way of saying that there is none.
_NO_LIMIT = 10**9
_LEARNABLE_HINT = (
    "raise max_length, or decode rows where labels are not -100 and see; most_unlearnable_fraction allows it"
)


@dataclass(frozen=True)
class _Prepare:
    """Makes the pipeline of a section; the engine is loaded once and shared."""

    data: DataSpec
    tokenizer: Tokenizer
    engine: Engine

    def __call__(self, num_rows: int) -> RowPipeline:
        return make_pipeline(self.data, self.tokenizer, self.engine, num_rows)


def text_recipe(
    dataset: Any,
    named: Named,
    tokenizer: Any,
    *,
    task: Literal["text", "pretrain", "conversation"],
    max_length: int,
    arrays: tuple[str, ...],
    column: str | None = None,
    pad_labels: Literal["mask", "keep"] = "mask",
    loss_on: Literal["assistant", "all"] = "all",
    most_unlearnable_fraction: float = 1.0,
    truncation_side: Literal["right", "left"] = "right",
    on_bad_record: Literal["fail", "mask"] = "fail",
    shuffle: tuple[int, int | Literal["auto"]] | None = None,
    engine: EngineChoice = "reference",
    meeting: Meeting | None = None,
) -> Recipe:
    """Return the recipe of a text or conversation column.

    Args:
        dataset: A name, or an object of ``datasets``.
        named: Split and the like of a name.
        tokenizer: A tokenizer of ``transformers`` with a fast form, or a name or path as the spec takes.
        task: What becomes of a record.
        max_length: Tokens of a row.
        arrays: Arrays to deliver.
        column: The column; None looks for the usual ones.
        pad_labels: Whether pads are labels.
        loss_on: What carries loss in a conversation.
        most_unlearnable_fraction: Share of the first rows that may have nothing to learn.
        truncation_side: End at which a long row is cut.
        on_bad_record: What a bad record does.
        shuffle: Seed and buffer of rows that are permuted; None keeps their order.
        engine: What makes the ids.
        meeting: Where ranks can talk, one of them lists named data for all, and all take one engine.

    Raises:
        SpecError: Arguments that do not fit together, or a tokenizer that does not fit.
        InputError: No such data or column.
        DataError: A column of another type, or too many conversations with nothing to learn.
    """
    given: dict[str, Any] = {}
    if column is not None:
        given["conversation_column" if task == "conversation" else "text_column"] = column
    if shuffle is not None:
        given["shuffle"] = shuffle_section(*shuffle)
    if isinstance(dataset, str | Path):
        given["sources"] = [source_of(str(dataset), named)]
    is_path = isinstance(tokenizer, str | Path)
    data = make_data_spec(
        {
            "tokenizer": {"path": str(tokenizer) if is_path else "given", "engine": engine},
            "task": task,
            "max_length": max_length,
            "pad_labels": pad_labels,
            "truncation_side": truncation_side,
            "on_bad_record": on_bad_record,
            "conversation": {"loss_on": loss_on, "most_unlearnable_fraction": most_unlearnable_fraction},
            **given,
        }
    )
    resolved = load_tokenizer(data) if is_path else tokenizer_of(data, tokenizer)
    origin = open_text(dataset, data, meeting)
    prepare = _Prepare(data, resolved, proved_engine(data, resolved, origin, meeting))
    pipeline = make_pipeline(data, resolved, prepare.engine, 1)
    if isinstance(origin, Indexed):
        # A column of another type is refused here, not by a thread at the first batch.
        pipeline.encode(pa.array([], origin.index.sources[0].schema.field(0).type))
    if task == "conversation" and loss_on == "assistant":
        check_learnable(pipeline.encode(first_records(origin)), data.conversation, "dataset", _LEARNABLE_HINT)
    return Recipe(origin, prepare, data, arrays)


def usable_max_length(tokenizer: Any, max_length: int | None) -> int:
    """Return the length that was asked for, else the tokenizer's own limit if that is one.

    Raises:
        SpecError: Neither; padding to 10^30 tokens would pad nothing, and every row would have its own shape.
    """
    if max_length is not None:
        return max_length
    if isinstance(tokenizer, str | Path):
        limit = find_limit(TokenizerSpec(path=str(tokenizer)))
    else:
        limit = getattr(tokenizer, "model_max_length", None)
    if not isinstance(limit, int) or not 1 < limit < _NO_LIMIT:
        refuse("max_length", "nothing, and a tokenizer that sets no limit of its own", "the tokens of a row")
    return limit
