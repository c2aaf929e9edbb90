"""The padded layout: one document a row."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Int32s

ARRAYS = ("input_ids", "attention_mask", "labels")


def pad_rows(
    documents: Documents,
    arrays: dict[str, Int32s],
    *,
    pad_id: int,
    truncation_side: Literal["right", "left"] = "right",
    pad_labels: Literal["mask", "keep"] = "mask",
) -> Rows:
    """Write documents into rows, one each, and return them with their account.

    A document longer than a row loses tokens of its content at ``truncation_side``; its prefix always stays, its
    suffix if the cut is on the left or the task says so (``Documents.close_cut``).

    Rows without a document (there are fewer documents than rows, or the record was bad) hold pads without a label.
    Their first place is attended to all the same: a row with nothing to attend to makes NaN in a softmax, and a
    label of -100 does not stop NaN.

    Args:
        documents: At most as many as there are rows.
        arrays: Written to: ``input_ids``, ``attention_mask`` (1 for tokens, 0 for pads) and ``labels``
            (``input_ids`` where a token carries loss, else -100), each int32 [rows, max_length]. Content is
            overwritten whole.
        pad_id: Id of pads.
        truncation_side: End at which a long document is cut.
        pad_labels: ``mask`` gives pads -100, by position; ``keep`` gives them ``pad_id``.

    Raises:
        ValueError: More documents than rows.
    """
    ids, attention, labels = (arrays[name] for name in ARRAYS)
    num_rows, max_length = ids.shape
    num_documents = documents.num_documents
    if num_documents > num_rows:
        raise ValueError(f"{num_documents} documents for {num_rows} rows")
    prefix, suffix = documents.prefix, documents.suffix

    # [documents]: tokens of the content that stay, and of the row in all.
    content = np.diff(documents.offsets)
    whole = documents.lengths
    keeps_suffix = (whole <= max_length) | (documents.close_cut or truncation_side == "left")
    room = max_length - len(prefix) - np.where(keeps_suffix, len(suffix), 0)
    kept = np.minimum(content, room)
    filled = np.minimum(whole, max_length)

    # What these documents have of the ids: after ``select`` they are some of many.
    mine = slice(int(documents.offsets[0]), int(documents.offsets[-1]))
    begins = documents.offsets[:-1] - mine.start + (content - kept if truncation_side == "left" else 0)
    values = documents.ids[mine]
    learnt = values if documents.trainable is None else np.where(documents.trainable[mine], values, NO_LABEL)

    # Rows are filled at memory speed, then each document is one copy: a third of what masks over whole arrays cost.
    ids.fill(pad_id)
    attention.fill(0)
    labels.fill(NO_LABEL)
    written = np.flatnonzero(whole)
    for row, begin, count, length in zip(
        written.tolist(), begins[written].tolist(), kept[written].tolist(), filled[written].tolist(), strict=True
    ):
        ids[row, len(prefix) : len(prefix) + count] = values[begin : begin + count]
        labels[row, len(prefix) : len(prefix) + count] = learnt[begin : begin + count]
        attention[row, :length] = 1
    closed = written[keeps_suffix[written]]
    for tokens in (ids, labels) if documents.trainable is None else (ids,):
        tokens[written, : len(prefix)] = prefix
        for place, token in enumerate(suffix, -len(suffix)):
            tokens[closed, filled[closed] + place] = token
    is_empty = np.ones(num_rows, np.bool_)
    is_empty[written] = False
    attention[is_empty, 0] = 1

    delivered = int(filled.sum())
    tokenised = int(whole.sum())
    account = TokenAccount(
        tokenised=tokenised,
        delivered=delivered,
        cut=tokenised - delivered,
        trainable=delivered if documents.trainable is None else int(np.count_nonzero(labels != NO_LABEL)),
        slots=num_rows * max_length,
    )
    if pad_labels == "keep":
        is_pad = np.arange(max_length) >= filled[:, None]
        np.copyto(labels[:num_documents], pad_id, where=is_pad & (whole > 0)[:, None])
    return Rows(arrays, account)
