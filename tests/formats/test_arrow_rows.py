"""Rows of Arrow arrays by place, and what they cost to ask for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuworker import arrow

VALUES = st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=40)


@given(VALUES, st.data())
def test_nulls_and_rows_of_a_slice_are_those_of_its_list(values: list[str | None], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(values)))
    end = data.draw(st.integers(begin, len(values)))
    array, wanted = pa.array(values, pa.string())[begin:end], values[begin:end]
    assert arrow.nulls(array).tolist() == [row for row, value in enumerate(wanted) if value is None]
    rows = data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=9)) if wanted else []
    assert arrow.take(array, np.array(rows, np.int64)).to_pylist() == [wanted[row] for row in rows]


def test_all_rows_of_the_null_type_are_null() -> None:
    assert arrow.nulls(pa.nulls(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("call", ["take(column, numpy.arange(2))", "nulls(column)"])
def test_asking_for_rows_does_not_import_pandas(call: str) -> None:
    program = (
        "import sys, numpy, pyarrow as pa; from tpuworker import arrow\n"
        "bits, ends = pa.py_buffer(b'\\1'), pa.py_buffer(numpy.array([0, 1, 1], 'i4'))\n"
        "column = pa.Array.from_buffers(pa.string(), 2, [bits, ends, pa.py_buffer(b'a')])\n"
        f"arrow.{call}\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
