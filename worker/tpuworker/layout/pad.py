"""The padded layout: one document a row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

import numpy as np

from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount, blocks, constant, fill
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Int32s, Int64s

ARRAYS = ("input_ids", "attention_mask", "labels")


class PaddedBatches:
    """Documents in the rows of consecutive batches, one each.

    A document longer than a row loses tokens of its content at ``truncation_side``; its prefix always stays, its
    suffix if the cut is on the left or the task says so (``Documents.close_cut``).

    Rows without a document (the last batch has fewer documents than rows, or the record was bad) hold pads without a
    label. Their first place is attended to all the same: a row with nothing to attend to makes NaN in a softmax, and a
    label of -100 does not stop NaN.

    All that is arithmetic on documents is done here, for all batches at once; what is left for each is copying.

    Args:
        documents: Any number; none make one batch of empty rows.
        shape: Rows of a batch, and places of a row.
        pad_id: Id of pads.
        truncation_side: End at which a long document is cut.
        pad_labels: ``mask`` gives pads -100, by position; ``keep`` gives them ``pad_id``.
    """

    def __init__(
        self,
        documents: Documents,
        shape: tuple[int, int],
        *,
        pad_id: int,
        truncation_side: Literal["right", "left"] = "right",
        pad_labels: Literal["mask", "keep"] = "mask",
    ) -> None:
        num_rows, max_length = shape
        self.num_batches = max(1, -(-documents.num_documents // num_rows))
        self._shape = shape
        prefix, suffix = documents.prefix, documents.suffix

        # [rows of all batches]: tokens of the document, tokens that stay, and those of the content that stay.
        missing = self.num_batches * num_rows - documents.num_documents
        whole = np.append(documents.lengths, np.zeros(missing, np.int64))
        content = np.append(np.diff(documents.offsets), np.zeros(missing, np.int64))
        filled = np.minimum(whole, max_length)
        is_closed = (whole <= max_length) | (documents.close_cut or truncation_side == "left")
        # A row that does not close its document is the beginning of it, which may reach into the suffix.
        reached = np.clip(max_length - len(prefix) - content, 0, len(suffix))
        closing = np.where(whole > 0, np.where(is_closed, len(suffix), reached), 0)
        kept = np.where(whole > 0, np.minimum(content, max_length - len(prefix) - closing), 0)
        begins = np.append(documents.offsets[:-1], np.zeros(missing, np.int64))
        begins += content - kept if truncation_side == "left" else 0

        ids = documents.ids.astype(np.int32, copy=False)  # a cache keeps them narrow
        trainable = documents.trainable
        self._ids = ids.data
        self._targets = self._ids if trainable is None else np.where(trainable, ids, np.int32(NO_LABEL)).data
        self._spans = list(zip(begins.tolist(), (begins + kept).tolist(), strict=True))
        self._gaps = (max_length - filled).tolist()
        # A row without a document has no template, and attends to one place.
        opening = np.where(whole > 0, len(prefix), 0)
        self._ids_before, self._ids_behind = _beginnings(prefix, opening), _beginnings(suffix, closing)
        self._targets_before, self._targets_behind = self._ids_before, self._ids_behind
        if trainable is not None:
            self._targets_before = _beginnings((NO_LABEL,) * len(prefix), opening)
            self._targets_behind = _beginnings((NO_LABEL,) * len(suffix), closing)
        self._unseen = np.minimum(max_length - filled, max_length - 1).tolist()
        self._seen = np.repeat(np.array([1, 0], np.int32), max_length).data
        self._pads, no_labels = constant(pad_id, max_length), constant(NO_LABEL, max_length)
        pad_labels_of_row = (no_labels, self._pads if pad_labels == "keep" else no_labels)
        self._pad_labels = [pad_labels_of_row[has_document] for has_document in (whole > 0).tolist()]

        self._tokenised, self._delivered = _sums(whole, num_rows), _sums(filled, num_rows)
        self._trainable = self._delivered
        if trainable is not None:
            totals = np.append(0, np.cumsum(trainable))
            self._trainable = _sums(totals[begins + kept] - totals[begins], num_rows)

    def write(self, number: int, arrays: dict[str, Int32s]) -> Rows:
        """Write one of the batches, and return it with its account.

        Args:
            number: Which, from 0.
            arrays: Written to, content overwritten whole, each int32 [rows, max_length]: ``input_ids``;
                ``attention_mask`` (1 for tokens, 0 for pads); ``labels`` (``input_ids`` where a token carries loss,
                else -100).
        """
        num_rows, max_length = self._shape
        ids, attention, labels = (arrays[name] for name in ARRAYS)
        for block in blocks(self._shape):
            here = slice(number * num_rows + block.start, number * num_rows + block.stop)
            spans, gaps = self._spans[here], self._gaps[here]
            contents = [self._ids[begin:end] for begin, end in spans]
            pads = [self._pads[:gap] for gap in gaps]
            fill(ids[block], _rows(self._ids_before[here], contents, self._ids_behind[here], pads))
            if self._targets is not self._ids:
                contents = [self._targets[begin:end] for begin, end in spans]
            pads = [values[:gap] for values, gap in zip(self._pad_labels[here], gaps, strict=True)]
            fill(labels[block], _rows(self._targets_before[here], contents, self._targets_behind[here], pads))
            fill(attention[block], [self._seen[unseen : unseen + max_length] for unseen in self._unseen[here]])
        tokenised, delivered = self._tokenised[number], self._delivered[number]
        account = TokenAccount(
            tokenised=tokenised,
            delivered=delivered,
            cut=tokenised - delivered,
            trainable=self._trainable[number],
            slots=num_rows * max_length,
        )
        return Rows(arrays, account)


def _rows(*columns: list[memoryview]) -> Iterator[memoryview]:
    """Yield the parts of rows one behind the other; each column has one for every row."""
    return chain.from_iterable(zip(*columns, strict=True))


def _beginnings(template: tuple[int, ...], counts: Int64s) -> list[memoryview]:
    """Return so many tokens of a template for each row."""
    tokens = np.array(template, np.int32).data
    return [tokens[:count] for count in counts.tolist()]


def _sums(values: Int64s, num_rows: int) -> list[int]:
    """Return the sum over the rows of each batch."""
    sums: list[int] = values.reshape(-1, num_rows).sum(axis=1).tolist()
    return sums
