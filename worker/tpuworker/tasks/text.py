"""Tasks on plain texts: ids as the tokenizer makes them, or documents that end with the end token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuworker.tasks.column import usable_texts
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Encoder
from tpuworker.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa


class TextTask:
    """Ids with the tokenizer's own template, as ``tokenizer(text, truncation=True)`` gives them."""

    fingerprint = "text/1"

    def __init__(self, tokenizer: Tokenizer, engine: Encoder) -> None:
        self._engine = engine
        self._prefix, self._suffix = tokenizer.prefix, tokenizer.suffix

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Documents:
        """See :class:`~tpuworker.tasks.task.Task`."""
        texts, bad = usable_texts(column)
        encoded = self._engine.encode(texts)
        return Documents(
            encoded.ids, encoded.offsets, prefix=self._prefix, suffix=self._suffix, close_cut=True, bad=bad
        )


class PretrainTask:
    """Ids with the tokenizer's template, and the end token behind every document that is not cut off.

    If the template already ends a text with the end token, there is no second one.
    """

    fingerprint = "pretrain/1"

    def __init__(self, tokenizer: Tokenizer, engine: Encoder) -> None:
        self._engine = engine
        self._prefix, self._suffix = tokenizer.prefix, tokenizer.suffix
        if tokenizer.eos_id is not None and tokenizer.suffix[-1:] != (tokenizer.eos_id,):
            self._suffix = (*tokenizer.suffix, tokenizer.eos_id)

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Documents:
        """See :class:`~tpuworker.tasks.task.Task`."""
        texts, bad = usable_texts(column)
        encoded = self._engine.encode(texts)
        return Documents(encoded.ids, encoded.offsets, prefix=self._prefix, suffix=self._suffix, bad=bad)
