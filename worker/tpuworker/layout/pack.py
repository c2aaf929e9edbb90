"""The packed layout: several documents a row, told apart by segment_ids."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tpuworker.layout.pieces import Pieces
from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount, blocks, constant, fill, places
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Int32s, Int64s

#: No attention_mask: it could only say "token or pad", and a model that used it alone would mix documents.
ARRAYS = ("input_ids", "labels", "segment_ids", "position_ids")


class PackedBatches:
    """Pieces of documents in the rows of consecutive batches.

    A model that attends only inside a segment, with these positions, computes for each piece what it would compute if
    the piece stood alone. The first token of each piece carries no label: what stands before it in the row is of
    another document.

    All that is arithmetic on pieces is done here, for all batches at once; what is left for each is copying.

    Args:
        documents: Those whose places ``pieces.documents`` are.
        pieces: From :mod:`tpuworker.layout.pieces`.
        shape: Rows of a batch, and places of a row. The last batch may have rows without a piece.
        pad_id: Id of pads.
        truncation_side: End at which documents were cut, as :func:`tpuworker.layout.pieces.pack_window` was told.
        pad_labels: ``mask`` gives pads -100, by position; ``keep`` gives them ``pad_id``.
    """

    def __init__(
        self,
        documents: Documents,
        pieces: Pieces,
        shape: tuple[int, int],
        *,
        pad_id: int,
        truncation_side: Literal["right", "left"] = "right",
        pad_labels: Literal["mask", "keep"] = "mask",
    ) -> None:
        rows_of_batch, max_length = shape
        self.num_batches = max(1, -(-pieces.num_rows // rows_of_batch))
        self._shape, self._pad_id, self._pad_labels = shape, pad_id, pad_labels
        num_rows, lengths = self.num_batches * rows_of_batch, pieces.lengths
        filled = np.bincount(pieces.rows, weights=lengths, minlength=num_rows).astype(np.int64)

        # Where a piece holds tokens of the template its source lies beside its document, even outside of the ids; such
        # places are written afterwards. Pads have a place behind all that, so that every row is runs of one array.
        ids, prefix = documents.ids.astype(np.int32, copy=False), np.zeros(len(documents.prefix), np.int32)
        outside = [np.zeros(len(documents.suffix), np.int32), np.full(max_length, pad_id, np.int32)]
        self._ids = np.concatenate([prefix, ids, *outside]).data
        self._is_trainable = documents.trainable is not None
        if documents.trainable is not None:
            targets = np.where(documents.trainable, ids, np.int32(NO_LABEL))
            outside = [np.full(len(part), NO_LABEL, np.int32) for part in outside]
            self._targets = np.concatenate([prefix, targets, *outside]).data

        # Runs are the pieces, and the pads at the end of each row that is not full.
        gaps = np.flatnonzero(filled < max_length)
        rows = np.concatenate([pieces.rows, gaps])
        order = np.argsort(rows, kind="stable")
        sources = np.concatenate(
            [documents.offsets[pieces.documents] + pieces.begins, np.full_like(gaps, len(self._ids) - max_length)]
        )[order]
        run_lengths = np.concatenate([lengths, max_length - filled[gaps]])[order]
        numbers = np.arange(1, len(lengths) + 1) - np.searchsorted(pieces.rows, np.arange(num_rows))[pieces.rows]
        segments = np.concatenate([numbers, np.zeros_like(gaps)])[order]
        self._spans = list(zip(sources.tolist(), (sources + run_lengths).tolist(), strict=True))
        self._marks = list(zip(segments.tolist(), run_lengths.tolist(), strict=True))
        self._first_runs = _firsts(rows[order], num_rows)
        self._gaps = list(zip((gaps % rows_of_batch).tolist(), filled[gaps].tolist(), strict=True))
        self._first_gaps = _firsts(gaps // rows_of_batch, self.num_batches)

        # Places are counted from the first one of the piece's batch.
        row_begins = np.arange(num_rows) % rows_of_batch * max_length
        begins = np.cumsum(lengths) - lengths + (row_begins - (np.cumsum(filled) - filled))[pieces.rows]
        batches = pieces.rows // rows_of_batch
        self._begins, self._first_pieces = begins, _firsts(batches, self.num_batches)
        template_places, tokens, owners = _template(documents, pieces, begins, truncation_side)
        order = np.argsort(batches[owners], kind="stable")
        self._template_places, self._template_tokens = template_places[order], tokens[order]
        self._first_places = _firsts(batches[owners][order], self.num_batches)

        self._delivered = filled.reshape(-1, rows_of_batch).sum(axis=1).tolist()
        self._cut = np.bincount(batches, weights=pieces.cut, minlength=self.num_batches).astype(np.int64).tolist()

    def write(self, number: int, arrays: dict[str, Int32s]) -> Rows:
        """Write one of the batches, and return it with its account.

        Args:
            number: Which, from 0.
            arrays: Written to, content overwritten whole, each int32 [rows, max_length]:
                ``input_ids``; ``labels`` (``input_ids`` where a token carries loss, else -100); ``segment_ids`` (1, 2,
                ... in each row, 0 for pads); ``position_ids`` (0, 1, ... in each piece, 0 for pads).
        """
        ids, labels, segments, positions = (arrays[name] for name in ARRAYS)
        pieces, template, gaps = (
            slice(*firsts[number : number + 2]) for firsts in (self._first_pieces, self._first_places, self._first_gaps)
        )
        num_rows, max_length = self._shape
        inside, zeros = places(max_length), constant(0, max_length)
        for block in blocks(self._shape):
            runs = slice(*(self._first_runs[number * num_rows + row] for row in (block.start, block.stop)))
            spans, marks = self._spans[runs], self._marks[runs]
            fill(ids[block], [self._ids[begin:end] for begin, end in spans])
            fill(segments[block], [constant(segment, max_length)[:length] for segment, length in marks])
            fill(positions[block], [(inside if segment else zeros)[:length] for segment, length in marks])
            if self._is_trainable:
                fill(labels[block], [self._targets[begin:end] for begin, end in spans])
        in_template, tails = self._template_places[template], self._gaps[gaps]
        ids.reshape(-1)[in_template] = self._template_tokens[template]
        if self._is_trainable:
            labels.reshape(-1)[in_template] = NO_LABEL
        else:
            labels[...] = ids
            for row, used in tails:
                labels[row, used:] = NO_LABEL
        labels.reshape(-1)[self._begins[pieces]] = NO_LABEL
        delivered, cut = self._delivered[number], self._cut[number]
        num_trainable = delivered - (pieces.stop - pieces.start)
        if self._is_trainable:
            num_trainable = int(np.count_nonzero(labels != NO_LABEL))
        if self._pad_labels == "keep":
            for row, used in tails:
                labels[row, used:] = self._pad_id if used else NO_LABEL
        return Rows(
            arrays,
            TokenAccount(
                tokenised=delivered + cut, delivered=delivered, cut=cut, trainable=num_trainable, slots=ids.size
            ),
        )


def _firsts(numbers: Int64s, count: int) -> list[int]:
    """Return where each of so many numbers begins in a sorted array, and where the last one ends."""
    firsts: list[int] = np.searchsorted(numbers, np.arange(count + 1)).tolist()
    return firsts


def _template(
    documents: Documents, pieces: Pieces, piece_begins: Int64s, truncation_side: Literal["right", "left"]
) -> tuple[Int64s, Int32s, Int64s]:
    """Return the places of prefix and suffix that pieces have, what is written there, and the piece of each.

    A piece of a document that was cut on the left still begins with the prefix; one that was cut on the right ends
    with the suffix only if the task wants it so.
    """
    whole = documents.lengths[pieces.documents]
    is_cut = pieces.cut > 0
    prefix_at = -np.where(is_cut & (truncation_side == "left"), 0, pieces.begins)
    closes = is_cut & (truncation_side == "right") & documents.close_cut
    suffix_at = np.where(closes, pieces.lengths, whole - pieces.begins) - len(documents.suffix)
    at = np.concatenate(
        [prefix_at + place for place in range(len(documents.prefix))]
        + [suffix_at + place for place in range(len(documents.suffix))]
        + [np.zeros(0, np.int64)]
    )
    template = np.array([*documents.prefix, *documents.suffix], np.int32)
    owners = np.tile(np.arange(len(pieces.rows)), len(template))
    mine = np.flatnonzero((at >= 0) & (at < pieces.lengths[owners]))
    return piece_begins[owners[mine]] + at[mine], np.repeat(template, len(pieces.rows))[mine], owners[mine]
