"""A column of texts made safe: no nulls, valid UTF-8, one chunk; what had to go is reported row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuworker.errors import DataError, Fault
from tpuworker.tokens.documents import BadRecord

if TYPE_CHECKING:
    import pyarrow as pa


def usable_texts(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, tuple[BadRecord, ...]]:
    """Return the texts with an empty one in place of each bad record, and the bad records.

    Args:
        column: Strings (any Arrow string type, or dictionaries of them), or bytes that hold UTF-8.

    Returns:
        A string or large_string array of the same length, without nulls, in one chunk; no copy if nothing was wrong.

    Raises:
        DataError: The column has another type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    array = _one_chunk(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
    if pa.types.is_null(array.type):
        array = array.cast(pa.string())
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if not is_text and not pa.types.is_binary(array.type) and not pa.types.is_large_binary(array.type):
        raise DataError(
            [
                Fault(
                    path="text column",
                    found=f"type {array.type}",
                    wanted="strings",
                    hint="name a column of texts in spec.data.text_column; for turns, take task: conversation",
                )
            ]
        )
    bad: list[BadRecord] = []
    if array.null_count:
        bad += [BadRecord(row, "null", "no text") for row in pc.indices_nonzero(pc.is_null(array)).to_pylist()]
        array = pc.fill_null(array, "" if is_text else b"")
    wanted = pa.large_string() if array.type in (pa.large_string(), pa.large_binary()) else pa.string()
    try:
        if is_text:
            array.validate(full=True)  # parquet readers pass bytes through as strings unchecked
        else:
            array = array.cast(wanted)
    except pa.ArrowInvalid:
        array, invalid = _without_invalid(array, wanted)
        bad += invalid
    return array, tuple(sorted(bad, key=lambda record: record.row))


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _without_invalid(array: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, list[BadRecord]]:
    """Replace texts that are no UTF-8 by empty ones. Row by row: it happens once, and the place must be known."""
    import pyarrow as pa

    texts: list[str] = []
    bad = []
    as_bytes = array.cast(pa.large_binary() if wanted == pa.large_string() else pa.binary())
    for row, content in enumerate(as_bytes.to_pylist()):
        try:
            texts.append(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            texts.append("")
            bad.append(BadRecord(row, "invalid-utf8", f"byte {error.start}: {error.reason}"))
    return pa.array(texts, wanted), bad
