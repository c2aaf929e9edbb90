"""Documents: what a task makes of records and a layout makes into rows; one document per record, bad ones empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpuworker.tokens.engine import Bools, Int32s, Int64s


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record nobody can train on; its document is empty, so that all others keep their places.

    Attributes:
        row: Place in the column the task was given, from 0.
        reason: One of a few words, to be counted by: ``null``, ``invalid-utf8``, ...
        detail: What was found, for the report.
    """

    row: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Documents:
    """Token ids of some records.

    The ids that every document begins and ends with (BOS, EOS, [CLS]) are stored once, not once per document; they
    count as tokens of each document all the same.

    Attributes:
        ids: int32 [tokens], content of all documents in order.
        offsets: int64 [documents + 1] into ``ids``.
        trainable: bool [tokens], True where a token carries loss; None: all of them do.
        prefix: Ids in front of every document.
        suffix: Ids behind every document.
        close_cut: Whether a document that is cut at its end still gets ``suffix``. A model's input format wants it
            ([SEP]); a language model must not learn that a text ends where it was cut.
        bad: Records that became empty documents, without prefix and suffix.
        unlearnable: Places of documents that are whole, but of which no token that reaches the model carries loss.
    """

    ids: Int32s
    offsets: Int64s
    trainable: Bools | None = None
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    close_cut: bool = False
    bad: tuple[BadRecord, ...] = ()
    unlearnable: tuple[int, ...] = ()

    @property
    def num_documents(self) -> int:
        """How many, bad ones included."""
        return len(self.offsets) - 1

    @property
    def is_bad(self) -> Bools:
        """bool [documents]."""
        flags = np.zeros(self.num_documents, np.bool_)
        flags[[record.row for record in self.bad]] = True
        return flags

    @property
    def lengths(self) -> Int64s:
        """int64 [documents]: tokens of each whole document, prefix and suffix included; 0 for bad ones."""
        lengths = np.diff(self.offsets) + (len(self.prefix) + len(self.suffix))
        if self.bad:
            lengths[self.is_bad] = 0
        return lengths

    def select(self, begin: int, end: int) -> Documents:
        """Return documents ``begin`` to ``end`` (exclusive) without copying ids."""
        return replace(
            self,
            offsets=self.offsets[begin : end + 1],
            bad=tuple(
                BadRecord(record.row - begin, record.reason, record.detail)
                for record in self.bad
                if begin <= record.row < end
            ),
            unlearnable=tuple(place - begin for place in self.unlearnable if begin <= place < end),
        )


def gather_documents(parts: Sequence[tuple[Documents, Int64s]]) -> Documents:
    """Return documents picked out of several, copied together: what a batch needs of the units it is drawn from.

    Args:
        parts: Documents of one task, and int64 [picked]: which of them, in the order wanted.
    """
    lengths = [np.diff(documents.offsets)[places] for documents, places in parts]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))]).astype(np.int64)
    spans = [
        (documents, begin, end)
        for documents, places in parts
        for begin, end in zip(
            documents.offsets[:-1][places].tolist(), documents.offsets[1:][places].tolist(), strict=True
        )
    ]
    ids = np.concatenate([np.zeros(0, np.int32), *(documents.ids[begin:end] for documents, begin, end in spans)])
    trainable = None
    if any(documents.trainable is not None for documents, _ in parts):
        flags = [
            np.ones(end - begin, np.bool_) if documents.trainable is None else documents.trainable[begin:end]
            for documents, begin, end in spans
        ]
        trainable = np.concatenate([np.zeros(0, np.bool_), *flags])
    bad = []
    unlearnable = []
    first = 0
    for documents, places in parts:
        records = {record.row: record for record in documents.bad}
        empty = set(documents.unlearnable)
        if records or empty:
            for row, place in enumerate(places.tolist(), first):
                if place in records:
                    bad.append(replace(records[place], row=row))
                if place in empty:
                    unlearnable.append(row)
        first += len(places)
    if not parts:
        return Documents(ids.astype(np.int32, copy=False), offsets)
    return replace(
        parts[0][0],
        ids=ids.astype(np.int32, copy=False),
        offsets=offsets,
        trainable=trainable,
        bad=tuple(bad),
        unlearnable=tuple(unlearnable),
    )
