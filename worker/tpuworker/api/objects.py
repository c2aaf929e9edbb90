"""Rows that a program holds itself: a ``datasets.Dataset``, in RAM or mapped, as units of the engine's index."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tpuworker.api.columns import as_column, column_type
from tpuworker.api.recipe import Indexed
from tpuworker.data.index import Index, SourceIndex
from tpuworker.errors import Fault, InputError
from tpuworker.formats.base import Decoded
from tpuworker.formats.values import projected
from tpuworker.storage import FileInfo, Storage

#: What is decoded at once; the loader keeps a few units per lane.
_UNIT_BYTES = 1 << 20
_UNIT_ROWS = (16, 4096)
#: How the index calls the format of its one table.
_FORMAT = "object"
#: Rows that are looked at for the type, the mean size and the fingerprint.
_SAMPLE_ROWS = 64


class Table(Protocol):
    """Rows by number, as Arrow."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        ...

    def __len__(self) -> int:
        """Rows."""
        ...

    def rows(self, numbers: range | Sequence[int]) -> Any:
        """Return a ``pyarrow.Table`` of some rows."""
        ...


class DatasetTable:
    """A ``datasets.Dataset``: its selection and its own transform count, its output format does not.

    Args:
        dataset: The dataset; only the rows asked for are read.
    """

    def __init__(self, dataset: Any) -> None:
        has_transform = dataset.format["type"] == "custom"
        self._dataset = dataset if has_transform else dataset.with_format("arrow")
        self._has_transform = has_transform

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, after a transform of its own."""
        if self._has_transform and len(self._dataset):
            return list(self._dataset[:1])
        return list(self._dataset.column_names)

    def __len__(self) -> int:
        return len(self._dataset)

    def rows(self, numbers: range | Sequence[int]) -> Any:
        """Return a ``pyarrow.Table`` of some rows."""
        rows = self._dataset[numbers]
        return pa.table({name: list(values) for name, values in rows.items()}) if self._has_transform else rows


class ObjectFormat:
    """Reads units, which are runs of rows, from a table. Made for one index, so it is no word of the spec.

    Args:
        table: The rows.
        names: Columns that are read; several become one struct column.
    """

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        self._table, self._names = table, names

    def read(
        self,
        storage: Storage,  # noqa: ARG002 (a format is called with it)
        file: FileInfo,  # noqa: ARG002
        start: int,
        stop: int,
        columns: Any | None,
    ) -> Decoded:
        """Return rows ``start`` to ``stop`` of the one column."""
        column = as_column(self._table.rows(range(start, stop)), self._names)
        name = columns.names[0] if columns is not None else "rows"
        return projected(pa.table({name: column}), columns)


def indexed_rows(table: Table, names: tuple[str, ...], place: str) -> Indexed:
    """Return the rows of a table as units of about a mebibyte.

    Args:
        table: The rows.
        names: Columns that are read; several become one struct column.
        place: What messages call it.

    Raises:
        InputError: It has no rows.
    """
    num_rows = len(table)
    if not num_rows:
        raise InputError([Fault("dataset", "no rows", "some rows")])
    numbers = np.unique(np.linspace(0, num_rows - 1, _SAMPLE_ROWS).astype(np.int64)).tolist()
    sample = as_column(table.rows(numbers), names)
    kind = column_type(sample.type)
    mean_bytes = max(1, sample.nbytes // len(sample))
    unit_rows = int(np.clip(1 << (_UNIT_BYTES // mean_bytes).bit_length(), *_UNIT_ROWS))
    starts = np.arange(0, num_rows, unit_rows, dtype=np.int64)
    stops = np.minimum(starts + unit_rows, num_rows)
    rows = stops - starts
    digest = hashlib.sha256(f"{num_rows}\0{kind}\0".encode())
    digest.update(repr(sample.to_pylist()).encode("utf-8", "surrogatepass"))
    source = SourceIndex(
        number=0,
        name=place,
        weight=1.0,
        files=(FileInfo(place, 0),),
        formats=(_FORMAT,),
        digests=(digest.hexdigest()[:16],),
        column="+".join(names),
        column_type=pa.schema([("+".join(names), kind)]).serialize().to_pybytes(),
        unit_files=np.zeros(len(starts), dtype=np.int64),
        unit_starts=starts,
        unit_stops=stops,
        unit_rows=rows,
        unit_raw_rows=rows,
        unit_bytes=rows * mean_bytes,
    )
    return Indexed(Index((source,)), {_FORMAT: ObjectFormat(table, names)})
