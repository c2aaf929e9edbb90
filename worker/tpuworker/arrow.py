"""Rows of Arrow arrays by NumPy places, without pandas.

``pa.array`` and ``to_numpy`` import it to look at what they are given: a third of a second before the first batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def take(array: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Return some rows of a ``pyarrow.Array``.

    Args:
        array: Any type.
        rows: int64 [picked], each a row of it.
    """
    import pyarrow as pa

    places = pa.py_buffer(np.ascontiguousarray(rows))
    return array.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, places]))


def nulls(array: Any) -> npt.NDArray[np.int64]:
    """Return the null rows of a ``pyarrow.Array``, int64 [nulls], ascending."""
    if not array.null_count:
        return np.zeros(0, np.int64)
    validity = array.buffers()[0]
    if validity is None:  # of the null type, which keeps nothing
        return np.arange(len(array))
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=array.offset + len(array))
    return np.flatnonzero(bits[array.offset :] == 0)
