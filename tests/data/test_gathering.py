"""Rows of many units come together in the order of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuworker.data.gathering import gather_column

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=6)


@given(st.data(), st.lists(TEXTS, max_size=4), st.integers(0, 8), st.sampled_from([pa.string(), pa.large_string()]))
def test_each_place_holds_the_row_picked_for_it_and_all_others_are_null(
    data: st.DataObject, units: list[list[str | None]], num_rows: int, kind: pa.DataType
) -> None:
    wanted: list[str | None] = [None] * num_rows
    picked: dict[int, list[tuple[int, int]]] = {}
    for place in range(num_rows):
        unit = data.draw(st.integers(-1, len(units) - 1))
        if unit >= 0:
            row = data.draw(st.integers(0, len(units[unit]) - 1))
            picked.setdefault(unit, []).append((row, place))
            wanted[place] = units[unit][row]
    parts = []
    for number, pairs in picked.items():
        unit_kind = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
        column = pa.array(["cut off", *units[number], "too"], unit_kind)[1:-1]
        rows, places = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
        parts.append((column, rows, places))
    found = gather_column(parts, num_rows, kind)
    found.validate(full=True)
    assert found.type == kind
    assert found.to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"a", b"", b"ccc"]),
        (pa.list_(pa.int32()), [[1], [], [2, 3]]),
        (pa.struct({"role": pa.string()}), [{"role": "a"}, {"role": None}, {"role": "c"}]),
    ],
    ids=["bytes", "lists", "records"],
)
def test_columns_that_are_no_texts_are_gathered_too(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, kind)
    found = gather_column([(column, np.array([2, 0]), np.array([0, 3]))], 4, kind)
    assert found.to_pylist() == [values[2], None, None, values[0]]
