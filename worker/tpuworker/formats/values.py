"""Columns brought to the types that the whole source agreed on, and rows that no decoder should be trusted with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpuworker.formats.base import BadRecord, Decoded

_LARGEST_STRING_BYTES = (1 << 31) - 1


def unify_types(first: Any, second: Any) -> Any | None:
    """Return the type that holds the values of both, or None if there is none.

    null takes any type, numbers widen, strings of all offsets are one, structs join their fields, lists their items.
    """
    first, second = plain_type(first), plain_type(second)
    if first.equals(second) or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_integer(first) and pa.types.is_integer(second):
        return pa.int64()
    numbers = pa.types.is_integer, pa.types.is_floating
    if any(f(first) for f in numbers) and any(f(second) for f in numbers):
        return pa.float64()
    if pa.types.is_list(first) and pa.types.is_list(second):
        item = unify_types(first.value_type, second.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return _unify_structs(first, second)
    return None


def _unify_structs(first: Any, second: Any) -> Any | None:
    fields = {field.name: field.type for field in first}
    for field in second:
        joined = unify_types(fields[field.name], field.type) if field.name in fields else plain_type(field.type)
        if joined is None:
            return None
        fields[field.name] = joined
    return pa.struct(list(fields.items()))


def plain_type(kind: Any) -> Any:
    """Return a type without its ways of storage: large, view and dictionary forms become the plain one."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    return kind


def one_array(column: Any, kind: Any) -> tuple[Any, tuple[BadRecord, ...]]:
    """Return a column as one array of ``kind`` with sound UTF-8, and the rows that had to be made null.

    A column of more than 2 GiB of text becomes ``large_string``.

    Args:
        column: ``pyarrow.ChunkedArray`` as decoded.
        kind: The type the source agreed on.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(kind) and column.nbytes > _LARGEST_STRING_BYTES:
        kind = pa.large_string()
    bad: tuple[BadRecord, ...] = ()
    try:
        cast = column.cast(kind)
        array = cast.combine_chunks() if cast.num_chunks != 1 else cast.chunk(0)
        array.validate(full=True)
    except pa.ArrowInvalid:
        array, bad = _without_bad_rows(column, kind)
    return (array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array), bad


def _without_bad_rows(column: Any, kind: Any) -> tuple[Any, tuple[BadRecord, ...]]:
    """Find the rows that cannot be cast or hold broken UTF-8, one by one: only where the whole column failed."""
    good, bad, row = [], [], 0
    for chunk in column.chunks:
        for index in range(len(chunk)):
            one = chunk.slice(index, 1)
            try:
                cast = one.cast(kind)
                cast.validate(full=True)
            except pa.ArrowInvalid as error:
                cast = pa.nulls(1, kind)
                detail = " ".join(str(error).split())[:200]
                bad.append(BadRecord(row, "invalid UTF-8" if "UTF8" in detail else "wrong type", detail))
            good.append(cast)
            row += 1
    return pa.concat_arrays(good) if good else pa.nulls(0, kind), tuple(bad)


def projected(table: Any, columns: Any | None, bad: Sequence[BadRecord] = ()) -> Decoded:
    """Return the wanted columns of a decoded unit, cast, with the rows that are no good made null.

    Args:
        table: What the decoder made.
        columns: ``pyarrow.Schema`` of the wanted columns; None keeps the table as it is.
        bad: Rows the decoder itself found bad.
    """
    faults = {fault.row: fault for fault in bad}
    if columns is None:
        return Decoded(table, tuple(faults[row] for row in sorted(faults)))
    arrays = []
    for field in columns:
        array, found = one_array(table.column(field.name), field.type)
        arrays.append(array)
        faults = {fault.row: fault for fault in found} | faults
    rows = sorted(faults)
    table = pa.table([_with_nulls(array, rows) for array in arrays], names=columns.names)
    return Decoded(table, tuple(faults[row] for row in rows))


def _with_nulls(array: Any, rows: list[int]) -> Any:
    if not rows:
        return array
    mask = np.zeros(len(array), dtype=bool)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
