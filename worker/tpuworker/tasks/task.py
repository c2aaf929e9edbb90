"""What a task is, and which one a job has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tpuworker.spec.data import DataSpec
from tpuworker.tokens.cutting import CuttingEncoder, may_cut
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Encoder, Engine
from tpuworker.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa


class Task(Protocol):
    """Turns records into documents."""

    @property
    def fingerprint(self) -> str:
        """All that decides the documents of given records, beside the tokenizer. Equal on all hosts."""

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Documents:
        """Return one document for each record, in order; a bad record gives an empty one.

        Raises:
            DataError: The column's type is none this task can read.
        """


def task_for(data: DataSpec, tokenizer: Tokenizer, engine: Engine) -> Task:
    """Return the job's task.

    Raises:
        SpecError: The task needs something that the tokenizer does not have (a chat template).
    """
    if data.task == "conversation":
        from tpuworker.tasks.conversation import ConversationTask

        return ConversationTask.create(data, tokenizer, engine)
    from tpuworker.tasks.text import PretrainTask, TextTask

    encoder: Encoder = engine
    # The cache keeps whole documents, since other lengths may ask for them.
    if data.layout == "pad" and data.truncation_side == "right" and data.cache is None and may_cut(tokenizer.json_text):
        encoder = CuttingEncoder(engine, data.max_length)
    return TextTask(tokenizer, encoder) if data.task == "text" else PretrainTask(tokenizer, encoder)
