"""The packed layout: several documents a row, told apart by segment_ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tpuworker.layout.pieces import Pieces
from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount, places
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Int32s, Int64s

#: No attention_mask: it could only say "token or pad", and a model that used it alone would mix documents.
ARRAYS = ("input_ids", "labels", "segment_ids", "position_ids")


def pack_rows(
    documents: Documents,
    pieces: Pieces,
    arrays: dict[str, Int32s],
    *,
    pad_id: int,
    truncation_side: Literal["right", "left"] = "right",
    pad_labels: Literal["mask", "keep"] = "mask",
) -> Rows:
    """Write pieces of documents into rows, and return them with their account.

    A model that attends only inside a segment, with these positions, computes for each piece what it would compute if
    the piece stood alone. The first token of each piece carries no label: what stands before it in the row is of
    another document.

    Args:
        documents: Those whose places ``pieces.documents`` are.
        pieces: At most as many rows as the arrays have; from :mod:`tpuworker.layout.pieces`.
        arrays: Written to, content overwritten whole, each int32 [rows, max_length]:
            ``input_ids``; ``labels`` (``input_ids`` where a token carries loss, else -100); ``segment_ids`` (1, 2, ...
            in each row, 0 for pads); ``position_ids`` (0, 1, ... in each piece, 0 for pads).
        pad_id: Id of pads.
        truncation_side: End at which documents were cut, as :func:`tpuworker.layout.pieces.pack_window` was told.
        pad_labels: ``mask`` gives pads -100, by position; ``keep`` gives them ``pad_id``.

    Raises:
        ValueError: More rows than the arrays have.
    """
    ids, labels, segments, positions = (arrays[name] for name in ARRAYS)
    num_rows, max_length = ids.shape
    if pieces.num_rows > num_rows:
        raise ValueError(f"{pieces.num_rows} rows of pieces for {num_rows} rows")
    lengths = pieces.lengths

    filled = np.bincount(pieces.rows, weights=lengths, minlength=num_rows).astype(np.int64)
    row_begins = np.arange(num_rows) * max_length
    begins = np.cumsum(lengths) - lengths + (row_begins - (np.cumsum(filled) - filled))[pieces.rows]
    numbers = np.arange(1, len(lengths) + 1) - np.searchsorted(pieces.rows, np.arange(num_rows))[pieces.rows]
    # Pads are one run at the end of each row that is not full.
    gaps = np.flatnonzero(filled < max_length)
    runs = _Runs(
        np.concatenate([begins, (row_begins + filled)[gaps]]),
        np.concatenate([lengths, max_length - filled[gaps]]),
        np.concatenate([numbers, np.zeros_like(gaps)]),
    )
    _mark(runs, segments.reshape(-1), positions.reshape(-1))

    sources = documents.offsets[pieces.documents] + pieces.begins - len(documents.prefix)
    values = documents.ids.astype(np.int32, copy=False)  # a cache keeps them narrow
    _copy_runs(values, sources, lengths, begins, ids.reshape(-1))
    _write_template(ids.reshape(-1), documents, pieces, begins, truncation_side)
    tails = list(zip(gaps.tolist(), filled[gaps].tolist(), strict=True))
    for row, used in tails:
        ids[row, used:] = pad_id

    labels[...] = ids
    labels.reshape(-1)[begins] = NO_LABEL
    if documents.trainable is not None:
        trainable = np.zeros((num_rows, max_length), np.bool_)
        _copy_runs(documents.trainable, sources, lengths, begins, trainable.reshape(-1))
        np.copyto(labels, NO_LABEL, where=~trainable)
    num_trainable = int(filled.sum()) - len(lengths)
    for row, used in tails:
        labels[row, used:] = NO_LABEL
    if documents.trainable is not None:
        num_trainable = int(np.count_nonzero(labels != NO_LABEL))
    if pad_labels == "keep":
        for row, used in tails:
            labels[row, used:] = pad_id if used else NO_LABEL

    cut = int(pieces.cut.sum())
    return Rows(
        arrays,
        TokenAccount(
            tokenised=int(filled.sum()) + cut,
            delivered=int(filled.sum()),
            cut=cut,
            trainable=num_trainable,
            slots=num_rows * max_length,
        ),
    )


@dataclass(frozen=True)
class _Runs:
    """Runs of places that cover all rows, int64 [runs] each: where they begin, their length, their segment."""

    begins: Int64s
    lengths: Int64s
    segments: Int64s


def _mark(runs: _Runs, segments: Int32s, positions: Int32s) -> None:
    """Write segment_ids and position_ids, all places at once: twice as fast as a copy for each run, however long."""
    order = np.argsort(runs.begins)
    lengths, marks = runs.lengths[order], runs.segments[order].astype(np.int32)
    segments[:] = np.repeat(marks, lengths)
    np.subtract(places(len(segments)), np.repeat(runs.begins[order].astype(np.int32), lengths), out=positions)
    if not marks.all():
        positions[segments == 0] = 0


def _copy_runs(
    values: npt.NDArray[Any], sources: Int64s, lengths: Int64s, begins: Int64s, out: npt.NDArray[Any]
) -> None:
    """Copy ``values[source : source + length]`` to each begin: one memory copy per piece, nothing per token.

    Where a piece holds tokens of the template the source lies beside its document, even outside of ``values``; such
    places are written afterwards.
    """
    inside = np.maximum(sources, 0)
    skipped = inside - sources
    counts = np.minimum(sources + lengths, len(values)) - inside
    # Memory views copy without the hand-over of the interpreter lock that NumPy pays for each slice.
    taken, given = values.data, out.data
    spans = zip((begins + skipped).tolist(), inside.tolist(), np.maximum(counts, 0).tolist(), strict=True)
    for begin, source, count in spans:
        given[begin : begin + count] = taken[source : source + count]


def _write_template(
    tokens: Int32s,
    documents: Documents,
    pieces: Pieces,
    piece_begins: Int64s,
    truncation_side: Literal["right", "left"],
) -> None:
    """Write prefix and suffix over the places that a piece has of them.

    A piece of a document that was cut on the left still begins with the prefix; one that was cut on the right ends
    with the suffix only if the task wants it so.
    """
    whole = documents.lengths[pieces.documents]
    is_cut = pieces.cut > 0
    begins = np.where(is_cut & (truncation_side == "left"), 0, pieces.begins)
    for place, token in enumerate(documents.prefix):
        at = place - begins
        mine = (at >= 0) & (at < pieces.lengths)
        tokens[piece_begins[mine] + at[mine]] = token
    closes = is_cut & (truncation_side == "right") & documents.close_cut
    suffix_at = np.where(closes, pieces.lengths, whole - pieces.begins) - len(documents.suffix)
    for place, token in enumerate(documents.suffix):
        at = suffix_at + place
        mine = (at >= 0) & (at < pieces.lengths)
        tokens[piece_begins[mine] + at[mine]] = token
