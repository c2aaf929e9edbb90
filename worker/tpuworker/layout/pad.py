"""The padded layout: one document a row."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Int32s, Int64s

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

    # [documents]: tokens of the content that stay, of the suffix that stay, and of the row in all.
    content = np.diff(documents.offsets)
    whole = documents.lengths
    fits = whole <= max_length
    keeps_suffix = fits | (documents.close_cut or truncation_side == "left")
    room = max_length - len(prefix) - np.where(keeps_suffix, len(suffix), 0)
    kept = np.minimum(content, room)
    begins = documents.offsets[:-1] + (content - kept if truncation_side == "left" else 0)
    filled = np.zeros(num_rows, np.int64)
    filled[:num_documents] = np.minimum(whole, max_length)
    has_document = np.zeros(num_rows, np.bool_)
    has_document[:num_documents] = whole > 0

    # [rows, max_length]: copy a window of each document, then put back what is not its own.
    is_token = np.arange(max_length, dtype=np.int32) < filled.astype(np.int32)[:, None]
    gather_windows(documents.ids, begins, ids[:num_documents, len(prefix) :])
    ids[:, : len(prefix)] = prefix
    closed = np.flatnonzero(has_document[:num_documents] & keeps_suffix)
    for place, token in enumerate(suffix):
        ids[closed, filled[closed] - len(suffix) + place] = token
    np.copyto(ids, pad_id, where=~is_token)

    np.copyto(attention, is_token)
    attention[~has_document, 0] = 1

    if documents.trainable is None:
        has_label = is_token
    else:
        trainable = np.zeros((num_rows, max_length), np.bool_)
        gather_windows(documents.trainable, begins, trainable[:num_documents, len(prefix) :])
        has_label = is_token & trainable
    if pad_labels == "keep":
        has_label = has_label | (~is_token & has_document[:, None])
    labels.fill(NO_LABEL)
    np.copyto(labels, ids, where=has_label)

    delivered = int(filled.sum())
    tokenised = int(whole.sum())
    return Rows(
        arrays,
        TokenAccount(
            tokenised=tokenised,
            delivered=delivered,
            cut=tokenised - delivered,
            trainable=delivered if documents.trainable is None else int(np.count_nonzero(has_label & is_token)),
            slots=num_rows * max_length,
        ),
    )


def gather_windows(source: npt.NDArray[Any], begins: Int64s, out: npt.NDArray[Any]) -> None:
    """Copy ``source[begin : begin + width]`` into each row of ``out``; what lies beyond the source is undefined.

    One indexing operation over a view of all windows, which copies whole rows at memory speed.

    Args:
        source: [n].
        begins: int64 [rows], each from 0 to n.
        out: [rows, width].
    """
    width = out.shape[1]
    last = len(source) - width
    if last < 0 or not len(begins):
        padded = np.zeros(len(source) + width, source.dtype)
        padded[: len(source)] = source
        out[...] = _windows(padded, width)[begins]
        return
    out[...] = _windows(source, width)[np.minimum(begins, last)]
    # The few windows that reach over the end are taken from a copy of the tail that has room behind it.
    over = np.flatnonzero(begins > last)
    if len(over):
        tail = np.zeros(2 * width, source.dtype)
        tail[:width] = source[last:]
        out[over] = _windows(tail, width)[begins[over] - last]


def _windows(source: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """[len(source) - width + 1, width]: a view of all windows. (sliding_window_view is the same, 30 us slower.)"""
    (step,) = source.strides
    shape = (len(source) - width + 1, width)
    return np.lib.stride_tricks.as_strided(source, shape, (step, step), writeable=False)
