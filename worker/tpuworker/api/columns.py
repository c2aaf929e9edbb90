"""The columns of a dataset that a function reads, as the one Arrow column that the engine carries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tpuworker.errors import Fault, InputError
from tpuworker.formats.values import plain_type

#: Columns of a dataset that was tokenised before; the first must be there.
TOKEN_COLUMNS = ("input_ids", "attention_mask", "labels")
#: What to do about rows that have none of them.
NO_TOKENS_HINT = "tokenise first: create_streaming_dataset, PretrainDataset and ConversationDataset do"


def find_column(names: Iterable[str], candidates: Sequence[str], argument: str) -> str:
    """Return the first candidate among the names.

    Raises:
        InputError: None of them; with the names that there are.
    """
    names = list(names)
    column = next((candidate for candidate in candidates if candidate in names), None)
    if column is None:
        found = f"columns {', '.join(names) or 'none'}"
        wanted = f"a column {' or '.join(map(repr, candidates))}"
        raise InputError([Fault("dataset", found, wanted, f"name it in {argument}")])
    return column


def token_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the token columns among the names.

    Raises:
        InputError: There is no ``input_ids``.
    """
    names = list(names)
    if TOKEN_COLUMNS[0] not in names:
        found = f"columns {', '.join(names) or 'none'}"
        raise InputError([Fault("dataset", found, "a column 'input_ids' of token ids", NO_TOKENS_HINT)])
    return tuple(name for name in TOKEN_COLUMNS if name in names)


def as_column(table: Any, names: Sequence[str]) -> Any:
    """Return the named columns of a ``pyarrow.Table`` as one: itself, or a struct of several."""
    if len(names) == 1:
        return table.column(names[0])
    whole = table.select(list(names)).combine_chunks()
    arrays = [whole.column(name).combine_chunks() for name in names]
    arrays = [array.chunk(0) if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, names=list(names))])


def column_type(kind: Any) -> Any:
    """Return the type units are cast to: plain, texts also where a sample holds only nulls."""
    plain = plain_type(kind)
    return pa.string() if pa.types.is_null(plain) or pa.types.is_binary(plain) else plain
