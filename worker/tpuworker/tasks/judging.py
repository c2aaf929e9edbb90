"""What makes a record bad beside its decoder, judged while the index is made, so that steps are counted without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tpuworker.spec.data import DataSpec
from tpuworker.tasks.column import usable_texts
from tpuworker.tokens.tokenizer import Tokenizer

#: A column to (row, reason) of each bad record.
Judge = Callable[[Any], Iterable[tuple[int, str]]]


def judge_for(data: DataSpec, tokenizer: Callable[[], Tokenizer]) -> Judge | None:
    """Return the judge of the job's task, or None where bad records are not left out.

    Nothing is tokenised, unless conversations with nothing to learn count as bad: what is left of those depends on
    their tokens.

    Args:
        data: The job's data section.
        tokenizer: Loads the job's tokenizer; called for conversations alone, whose template can refuse them.

    Raises:
        SpecError: The tokenizer has no chat template.
    """
    if isinstance(data.on_bad_record, str):
        return None
    if data.task != "conversation":
        return lambda column: [(bad.row, bad.reason) for bad in usable_texts(column)[1]]
    from tpuworker.tasks.conversation import ConversationTask, render_column
    from tpuworker.tokens.choose import make_engine
    from tpuworker.tokens.verdict import reference_verdict

    loaded = tokenizer()
    engine = make_engine(reference_verdict(loaded), data.tokenizer, loaded)
    task = ConversationTask.create(data, loaded, engine)
    if data.conversation.loss_on == "assistant" and data.conversation.nothing_to_learn == "fail":
        return lambda column: [(bad.row, bad.reason) for bad in task.encode(column).bad]
    return lambda column: [(bad.row, bad.reason) for bad in render_column(column, task.template, task.spec)[1]]
