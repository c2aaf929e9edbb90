"""Rows whose ids were made before: lists of one length become int32 arrays, nothing done per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpuworker.api.columns import TOKEN_COLUMNS
from tpuworker.errors import DataError, Fault
from tpuworker.layout.rows import NO_LABEL, Rows, TokenAccount
from tpuworker.tokens.documents import BadRecord
from tpuworker.tokens.engine import Int32s


@dataclass(frozen=True)
class TokenRows:
    """Rows of ids, in the place of documents.

    Attributes:
        arrays: Name to int32 [rows, max_length].
        bad: None: a row is sound or refused.
        absent: Places of rows without a record, which carry no loss by rule.
    """

    arrays: dict[str, Int32s]
    bad: tuple[BadRecord, ...] = ()
    absent: tuple[int, ...] = ()

    @property
    def ids(self) -> Int32s:
        """All ids, for the count of tokens."""
        return self.arrays["input_ids"].reshape(-1)

    @property
    def unlearnable(self) -> tuple[int, ...]:
        """Places of rows that came without a single label."""
        empty = np.flatnonzero(~np.any(self.arrays["labels"] != NO_LABEL, axis=1))
        return tuple(np.setdiff1d(empty, self.absent).tolist())


@dataclass(frozen=True)
class TokenisedPipeline:
    """Takes the place of task and layout where ids are there already.

    Attributes:
        names: Columns, as they stand in the struct; one alone is the column itself.
        max_length: Ids of every row.
        num_rows: Rows of a batch.
        records_per_call: Records that are best taken at once.
    """

    names: tuple[str, ...]
    max_length: int
    num_rows: int
    records_per_call: int = 1024

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What decides the arrays of given records."""
        return {"task": "tokenised/1", "layout": f"{'+'.join(self.names)}/{self.max_length}"}

    def encode(self, column: Any) -> TokenRows:
        """Return the arrays of many records at once; a null one is a row without loss whose first place is seen.

        A missing attention mask is all ones; missing labels are the ids where they are attended to, else -100.

        Raises:
            DataError: A row of another length, or ids that are no int32.
        """
        arrays = {
            name: self._rows(column if len(self.names) == 1 else pc.struct_field(column, name), name)
            for name in self.names
        }
        ids = arrays["input_ids"]
        mask = arrays.setdefault("attention_mask", np.ones_like(ids))
        labels = arrays.setdefault("labels", np.where(mask != 0, ids, np.int32(NO_LABEL)))
        absent = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        labels[absent] = NO_LABEL
        mask[absent] = 0
        mask[absent, 0] = 1
        return TokenRows({name: arrays[name] for name in TOKEN_COLUMNS}, absent=tuple(absent.tolist()))

    def padded(self, made: TokenRows) -> Iterator[Rows]:
        """Yield consecutive batches of rows, without a copy."""
        for first in range(0, len(made.arrays["input_ids"]), self.num_rows):
            arrays = {name: array[first : first + self.num_rows] for name, array in made.arrays.items()}
            delivered = int(np.count_nonzero(arrays["attention_mask"]))
            trainable = int(np.count_nonzero(arrays["labels"] != NO_LABEL))
            slots = arrays["input_ids"].size
            yield Rows(arrays, TokenAccount(delivered, delivered, trainable=trainable, slots=slots))

    def batch(self, column: Any) -> dict[str, Int32s]:
        """Return ``input_ids``, ``attention_mask`` and ``labels``, int32 [rows, max_length], of one batch."""
        return self.encode(column).arrays

    def _rows(self, lists: Any, name: str) -> Int32s:
        lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
        if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
            raise DataError([Fault(name, f"type {lists.type}", "lists of whole numbers")])
        present = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
        lengths = pc.list_value_length(lists.drop_null()).to_numpy()
        wrong = np.flatnonzero(lengths != self.max_length)
        if wrong.size:
            found = f"a row of {lengths[wrong[0]]} tokens"
            hint = 'every batch has one shape: tokenise with padding="max_length", truncation=True and max_length'
            raise DataError([Fault(name, found, f"{self.max_length}, as in the first row", hint)])
        try:
            values = lists.drop_null().flatten().cast(pa.int32()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            raise DataError([Fault(name, str(error), "token ids that are int32")]) from error
        rows = np.zeros((len(lists), self.max_length), np.int32)
        rows[present] = values.reshape(len(present), self.max_length)
        return rows
