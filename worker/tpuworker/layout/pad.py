"""The padded layout: one document a row."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount, constant
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
    values = documents.ids[mine].astype(np.int32, copy=False)  # a cache keeps them narrow
    learnt = values if documents.trainable is None else np.where(documents.trainable[mine], values, NO_LABEL)

    # A row is written in two copies, content and pads: no place is written twice, and memory views copy without the
    # hand-over of the interpreter lock that NumPy pays for each slice.
    rows_of_ids, rows_of_labels, rows_of_attention = (array.reshape(-1).data for array in (ids, labels, attention))
    tokens, targets = values.data, learnt.astype(np.int32, copy=False).data
    pads, no_labels, ones, zeros = (constant(value, max_length) for value in (pad_id, NO_LABEL, 1, 0))
    written = np.flatnonzero(whole)
    counts = np.zeros((3, num_rows), np.int64)
    counts[:, written] = begins[written], kept[written], filled[written]
    first = len(prefix)
    for row, (begin, count, length) in enumerate(counts.T.tolist()):
        place = row * max_length
        content_place, end, next_place = place + first, place + first + count, place + max_length
        if not length:
            content_place = end = place
        rows_of_ids[content_place:end] = tokens[begin : begin + count]
        rows_of_ids[end:next_place] = pads[: next_place - end]
        rows_of_labels[content_place:end] = targets[begin : begin + count]
        rows_of_labels[end:next_place] = no_labels[: next_place - end]
        rows_of_attention[place : place + length] = ones[:length]
        rows_of_attention[place + length : next_place] = zeros[length:]
    closed = written[keeps_suffix[written]]
    labels[written, : len(prefix)] = NO_LABEL
    for array in (ids, labels) if documents.trainable is None else (ids,):
        array[written, : len(prefix)] = prefix
        for place, token in enumerate(suffix, -len(suffix)):
            array[closed, filled[closed] + place] = token
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
