"""Rows picked out of decoded units into one column, in the order of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tpuworker import arrow

Int64s = npt.NDArray[np.int64]
#: Rows of one unit: its decoded column, which rows of it, int64 [picked], and their places in the result, the same.
Picked = tuple[Any, Int64s, Int64s]

#: By the number of the type: hashing a type itself takes longer than copying a row.
_OFFSETS: dict[int, type[np.signedinteger[Any]]] = {
    pa.string().id: np.int32,
    pa.binary().id: np.int32,
    pa.large_string().id: np.int64,
    pa.large_binary().id: np.int64,
}
_WIDE = {pa.string().id: pa.large_string(), pa.binary().id: pa.large_binary()}
_MOST_NARROW_BYTES = 2**31 - 1


def gather_column(picked: Sequence[Picked], num_rows: int, kind: pa.DataType) -> Any:
    """Return ``pyarrow.Array`` [num_rows]; places that nothing was picked for are null.

    The rows of a batch come from hundreds of units, a few from each. Texts are copied once, straight to their places:
    a ``take`` for each unit costs ten times as much, nearly all of it in the calls.

    Args:
        picked: What to take from where.
        num_rows: Rows of the result.
        kind: Type of the result; where texts exceed 2 GiB, the same with wide offsets.
    """
    if kind.id in _OFFSETS and all(column.type.id in _OFFSETS for column, _, _ in picked):
        return _gathered_texts(picked, num_rows, kind)
    order = np.concatenate([np.zeros(0, np.int64), *(places for _, _, places in picked)])
    parts = [arrow.take(column, rows).cast(kind) for column, rows, _ in picked]
    missing = np.setdiff1d(np.arange(num_rows), order)
    if len(missing):
        parts.append(pa.nulls(len(missing), kind))
        order = np.concatenate([order, missing])
    inverse = np.empty(num_rows, np.int64)
    inverse[order] = np.arange(num_rows)
    return arrow.take(pa.concat_arrays(parts), inverse) if parts else pa.nulls(0, kind)


def _gathered_texts(picked: Sequence[Picked], num_rows: int, kind: pa.DataType) -> pa.Array:
    contents: list[memoryview] = []
    unit_of, begins, lengths = (np.zeros(num_rows, np.int64) for _ in range(3))
    is_valid = np.zeros(num_rows, np.bool_)
    for column, rows, places in picked:
        _, offset_buffer, content = column.buffers()
        offsets = np.frombuffer(offset_buffer, _OFFSETS[column.type.id])[column.offset :] if len(column) else _NONE
        unit_of[places] = len(contents)
        begins[places] = offsets[rows]
        lengths[places] = offsets[rows + 1] - offsets[rows]
        is_valid[places] = ~np.isin(rows, arrow.nulls(column)) if column.null_count else True
        contents.append(memoryview(content if content is not None else b""))
    lengths[~is_valid] = 0
    spans = zip(unit_of.tolist(), begins.tolist(), (begins + lengths).tolist(), strict=True)
    joined = b"".join([contents[unit][begin:end] for unit, begin, end in spans if end > begin])
    kind = kind if len(joined) <= _MOST_NARROW_BYTES else _WIDE.get(kind.id, kind)
    offsets = np.zeros(num_rows + 1, _OFFSETS[kind.id])
    np.cumsum(lengths, out=offsets[1:])
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(kind, num_rows, [validity, pa.py_buffer(offsets), pa.py_buffer(joined)])


_NONE = np.zeros(1, np.int64)
