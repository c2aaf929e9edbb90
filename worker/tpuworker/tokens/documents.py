"""Documents: what a task makes of records and a layout makes into rows; one document per record, bad ones empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

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


def gather_documents(parts: Sequence[tuple[Documents, Int64s]], order: Int64s | None = None) -> Documents:
    """Return documents picked out of several, copied once: what a batch needs of the units it is drawn from.

    Args:
        parts: Documents of one task, and int64 [picked]: which of them.
        order: Place in the result of each that was picked, int64 [all picked], each place once; None keeps them in the
            order of ``parts``.
    """
    if not parts:
        return Documents(np.zeros(0, np.int32), np.zeros(1, np.int64))
    counts = [len(places) for _, places in parts]
    part_of = np.repeat(np.arange(len(parts)), counts)
    begins = np.concatenate([documents.offsets[places] for documents, places in parts])
    ends = np.concatenate([documents.offsets[places + 1] for documents, places in parts])
    where = np.arange(len(part_of)) if order is None else order
    from_place = np.empty(len(where), np.int64)
    from_place[where] = np.arange(len(where))
    part_of, begins, ends = part_of[from_place], begins[from_place], ends[from_place]
    offsets = np.zeros(len(begins) + 1, np.int64)
    np.cumsum(ends - begins, out=offsets[1:])
    spans = list(zip(part_of.tolist(), begins.tolist(), ends.tolist(), strict=True))
    trainable = None
    if any(documents.trainable is not None for documents, _ in parts):
        flags = [
            np.ones(len(documents.ids), np.bool_) if documents.trainable is None else documents.trainable
            for documents, _ in parts
        ]
        trainable = _joined(flags, spans)
    bad, unlearnable = list[BadRecord](), list[int]()
    first = 0
    for documents, places in parts:
        here = where[first : first + len(places)]
        if documents.bad:
            records = {record.row: record for record in documents.bad}
            mine = np.flatnonzero(np.isin(places, list(records)))
            bad += [replace(records[int(places[pick])], row=int(here[pick])) for pick in mine]
        unlearnable += here[np.isin(places, documents.unlearnable)].tolist()
        first += len(places)
    return replace(
        parts[0][0],
        ids=_joined([documents.ids for documents, _ in parts], spans).astype(np.int32, copy=False),
        offsets=offsets,
        trainable=trainable,
        bad=tuple(sorted(bad, key=lambda record: record.row)),
        unlearnable=tuple(sorted(unlearnable)),
    )


def _joined(arrays: Sequence[npt.NDArray[Any]], spans: Sequence[tuple[int, int, int]]) -> npt.NDArray[Any]:
    """Return the values of spans (array, begin, end), one behind the other."""
    if len({array.dtype for array in arrays}) > 1:  # a cache keeps ids narrow, and not all come from it
        return np.concatenate([arrays[0][:0], *(arrays[number][begin:end] for number, begin, end in spans)])
    # One call that copies at memory speed, where NumPy would set up a copy for each document.
    views = [array.data for array in arrays]
    return np.frombuffer(b"".join([views[number][begin:end] for number, begin, end in spans]), arrays[0].dtype)
