"""The conversation task: chat template, and loss on what the assistant says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tpuworker.errors import DataError, Fault
from tpuworker.spec.data import ConversationSpec, DataSpec
from tpuworker.tasks.spans import SpanMasker
from tpuworker.tasks.template import ChatTemplate, Rendered
from tpuworker.tasks.turns import BadTurns, read_turns, turn_fields
from tpuworker.tokens.documents import BadRecord, Documents
from tpuworker.tokens.engine import Bools, Encoded, Engine, Int64s
from tpuworker.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING_TO_LEARN = "nothing-to-learn"
_LEARNABLE_HINT = "raise max_length, write truncation_side: left, or look at rows with tpulaunch plan --show 3"


@dataclass(frozen=True)
class ConversationTask:
    """Conversations as the tokenizer's chat template writes them, without BOS or EOS that the template does not write.

    Use :meth:`create`.

    Attributes:
        spec: The rules.
        engine: Makes the ids.
        template: Renders.
        masker: Finds the assistant's tokens.
        window: Tokens of a document that reach the model, or None if all do (``layout: pack`` with ``split``).
        truncation_side: End at which a longer one is cut.
    """

    spec: ConversationSpec
    engine: Engine
    template: ChatTemplate
    masker: SpanMasker
    window: int | None
    truncation_side: Literal["right", "left"]

    @classmethod
    def create(cls, data: DataSpec, tokenizer: Tokenizer, engine: Engine) -> ConversationTask:
        """Return the task of a job; the template is compiled here."""
        splits = data.layout == "pack" and data.packing.overflow == "split"
        return cls(
            spec=data.conversation,
            engine=engine,
            template=ChatTemplate(tokenizer, wants_spans=data.conversation.loss_on == "assistant"),
            masker=SpanMasker(tokenizer.json_text),
            window=None if splits else data.max_length,
            truncation_side=data.truncation_side,
        )

    @property
    def fingerprint(self) -> str:
        """All that decides the documents of given records, beside the tokenizer."""
        template = hashlib.sha256(self.template.source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        rules = f"{self.spec.loss_on}/{self.spec.system_role}/{self.spec.nothing_to_learn}"
        window = f"{self.window}/{self.truncation_side}"  # decides which documents have nothing to learn
        return f"conversation/1/{rules}/{window}/{template}"

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Documents:
        """Return one document per conversation; see :class:`~tpuworker.tasks.task.Task`.

        Conversations with nothing to learn inside the window are bad records under ``nothing_to_learn: fail``, and
        otherwise stand in ``Documents.unlearnable``: they keep their place and carry no loss.

        Raises:
            DataError: The column holds no lists of messages.
        """
        rendered, bad = render_column(column, self.template, self.spec)
        texts = [item.text for item in rendered]
        encoded = self.engine.encode(texts)
        if self.spec.loss_on == "all":
            return Documents(encoded.ids, encoded.offsets, bad=tuple(bad))
        mask = self.masker.mask(texts, [item.spans for item in rendered], encoded)
        empty = self._without_labels(encoded, mask, {record.row for record in bad})
        if self.spec.nothing_to_learn == "fail":
            bad += [BadRecord(row, NOTHING_TO_LEARN, self._why(encoded, mask, row)) for row in empty]
            bad.sort(key=lambda record: record.row)
            encoded, mask = _emptied(encoded, mask, empty)
            empty = []
        return Documents(encoded.ids, encoded.offsets, trainable=mask, bad=tuple(bad), unlearnable=tuple(empty))

    def _without_labels(self, encoded: Encoded, mask: Bools, bad: set[int]) -> list[int]:
        """Rows of which no trainable token lies in the window, but for its first, which nothing predicts."""
        begins, ends = self._window(encoded)
        before = np.concatenate([[0], np.cumsum(mask)])
        counts = before[ends] - before[np.minimum(begins + 1, ends)]
        return [row for row in np.flatnonzero(counts == 0).tolist() if row not in bad]

    def _window(self, encoded: Encoded) -> tuple[Int64s, Int64s]:
        begins, ends = encoded.offsets[:-1], encoded.offsets[1:]
        if self.window is None:
            return begins, ends
        if self.truncation_side == "right":
            return begins, np.minimum(begins + self.window, ends)
        return np.maximum(ends - self.window, begins), ends

    def _why(self, encoded: Encoded, mask: Bools, row: int) -> str:
        begin, end = encoded.offsets[row], encoded.offsets[row + 1]
        said = int(mask[begin:end].sum())
        if not said:
            return "the assistant says nothing"
        return f"all {said} tokens of the assistant are cut off, {end - begin} tokens in all"


def render_column(
    column: pa.Array | pa.ChunkedArray, template: ChatTemplate, spec: ConversationSpec
) -> tuple[list[Rendered], list[BadRecord]]:
    """Return each conversation as text (an empty one for a bad record), and the bad records.

    Raises:
        DataError: The column holds no lists of messages.
    """
    fields = turn_fields(column.type)
    rendered = []
    bad = []
    for row, record in enumerate(column.to_pylist()):
        turns = read_turns(record, fields, spec.system_role)
        made = turns if isinstance(turns, BadTurns) else template.render(turns)
        if isinstance(made, BadTurns):
            bad.append(BadRecord(row, made.reason, made.detail))
            made = Rendered("", ())
        rendered.append(made)
    return rendered, bad


def check_learnable(documents: Documents, spec: ConversationSpec, name: str, hint: str = _LEARNABLE_HINT) -> None:
    """Refuse data of which too large a share has nothing to learn; on a probe of rows, before the first step.

    Args:
        documents: Of the probed rows.
        spec: Says how large a share is too large.
        name: What the rows are called in the refusal.
        hint: What to do about it.

    Raises:
        DataError: It is larger.
    """
    empty = set(documents.unlearnable) | {record.row for record in documents.bad if record.reason == NOTHING_TO_LEARN}
    if not documents.num_documents:
        return
    share = len(empty) / documents.num_documents
    if share > spec.most_unlearnable_fraction:
        raise DataError(
            [
                Fault(
                    path=name,
                    found=f"{len(empty)} of {documents.num_documents} probed rows without a token to learn",
                    wanted=f"at most {spec.most_unlearnable_fraction:.0%}, as most_unlearnable_fraction says",
                    hint=hint,
                )
            ]
        )


def _emptied(encoded: Encoded, mask: Bools, rows: list[int]) -> tuple[Encoded, Bools]:
    """Take the tokens of some texts out."""
    lengths = encoded.lengths
    keep = np.ones(encoded.num_texts, np.bool_)
    keep[rows] = False
    kept_tokens = np.repeat(keep, lengths)
    offsets = np.concatenate([[0], np.cumsum(np.where(keep, lengths, 0))]).astype(np.int64)
    return Encoded(encoded.ids[kept_tokens], offsets), mask[kept_tokens]
