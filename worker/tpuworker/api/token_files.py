"""Files whose rows were tokenised before: their token columns as the one column that the engine carries, no copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from tpuworker.api.columns import NO_TOKENS_HINT, TOKEN_COLUMNS, as_column, token_columns
from tpuworker.api.meeting import Meeting, shared_index
from tpuworker.api.recipe import Indexed, ReaderJob, make_data_spec
from tpuworker.data.index import Index
from tpuworker.data.indexing import Wanted, build_index
from tpuworker.errors import DataError, Fault
from tpuworker.formats import FORMATS, UnitFormat
from tpuworker.formats.base import Decoded
from tpuworker.formats.hub import DatasetsFormat
from tpuworker.formats.values import projected
from tpuworker.storage import FileInfo, Storage, redact

#: Whatever files call them, ids come as lists of it; the pipeline refuses those that are no int32.
_LIST = pa.list_(pa.int64())
_PREFIX = "tokens of "


class TokenColumns:
    """Reads units of another format, with several of their columns as one.

    Args:
        format_: What reads the units.
        names: Columns; one alone is the column itself, several become a struct.
    """

    def __init__(self, format_: UnitFormat, names: tuple[str, ...]) -> None:
        self._format, self._names = format_, names
        self._columns = pa.schema([(name, _LIST) for name in names])

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return rows of the one column, int64 lists.

        Raises:
            DataError: A file without one of the columns that the first file has.
        """
        # The copy that the format of the datasets library makes on scratch has one column, or all of them.
        asked = None if isinstance(self._format, DatasetsFormat) else self._columns
        try:
            decoded = self._format.read(storage, file, start, stop, asked)
            table = projected(decoded.table, self._columns, decoded.bad)
        except KeyError as error:
            wanted = f"columns {', '.join(self._names)}, as in the first file"
            raise DataError([Fault(redact(file.url), f"no column {error}", wanted)]) from error
        name = columns.names[0] if columns is not None else "+".join(self._names)
        return Decoded(pa.table({name: as_column(table.table, self._names)}), table.bad)


def indexed_tokens(source: dict[str, Any], meeting: Meeting | None) -> tuple[Indexed, tuple[str, ...], Any]:
    """Return the tokenised rows of a source, their token columns, and the first row as a ``pyarrow.Table``.

    Args:
        source: As ``spec.data.sources`` has it.
        meeting: Where ranks can talk, one of them lists the files for all.

    Raises:
        InputError: No such data, or no ``input_ids``.
    """
    job = ReaderJob(make_data_spec({"sources": [source], "max_length": 2}))
    wanted = Wanted(TOKEN_COLUMNS[:1], of_text=False, hint=NO_TOKENS_HINT)
    index = shared_index(meeting, lambda: build_index(job, wanted=wanted))
    (found,) = index.sources
    formats: dict[str, UnitFormat] = {name: FORMATS[name]() for name in dict.fromkeys(found.formats)}
    first = Indexed(index, formats).first_unit(None).slice(0, 1)
    names = token_columns(first.column_names)
    kind = _LIST if len(names) == 1 else pa.struct([(name, _LIST) for name in names])
    column = "+".join(names)
    renamed = replace(
        found,
        formats=tuple(_PREFIX + name for name in found.formats),
        column=column,
        column_type=pa.schema([(column, kind)]).serialize().to_pybytes(),
        unit_bytes=found.unit_bytes * len(names),
    )
    readers = {_PREFIX + name: TokenColumns(format_, names) for name, format_ in formats.items()}
    return Indexed(Index((renamed,)), readers), names, first
