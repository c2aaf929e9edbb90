"""Columns of texts: which types are taken, and which records are bad."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.tokens.builders import make_data, make_reference, make_tokenizer
from tpuworker.errors import DataError
from tpuworker.pipeline import make_pipeline
from tpuworker.tasks.column import usable_texts
from tpuworker.tasks.text import TextTask

TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip


def invalid_strings() -> pa.Array:
    """Strings as a parquet reader gives them, where nobody looked at the bytes."""
    contents = [b"fine", b"\xe4\xb8", b"ok\xff"]
    source = pa.array(contents, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(source), source.buffers())


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_every_kind_of_text_column_is_taken(column_type: pa.DataType) -> None:
    column = pa.array(["a", None, "ß"]).cast(pa.string())
    if pa.types.is_dictionary(column_type):
        column = column.dictionary_encode()
    else:
        column = pa.array(["a", None, "ß"] if "string" in str(column_type) else [b"a", None, "ß".encode()], column_type)
    texts, bad = usable_texts(pa.chunked_array([column, column]))
    assert texts.to_pylist() == ["a", "", "ß"] * 2
    assert [(record.row, record.reason) for record in bad] == [(1, "null"), (4, "null")]


def test_a_column_of_nothing_but_nulls_is_all_bad() -> None:
    texts, bad = usable_texts(pa.nulls(2))
    assert texts.to_pylist() == ["", ""]
    assert len(bad) == 2


def test_strings_that_are_no_utf8_are_bad_and_say_where() -> None:
    texts, bad = usable_texts(invalid_strings())
    assert texts.to_pylist() == ["fine", "", ""]
    assert [(record.row, record.reason) for record in bad] == [(1, "invalid-utf8"), (2, "invalid-utf8")]
    assert bad[1].detail.startswith("byte 2")


def test_good_columns_are_not_copied() -> None:
    column = pa.array(["a", "b"])
    texts, _ = usable_texts(pa.chunked_array([column]))
    assert texts.buffers()[2].address == column.buffers()[2].address


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array([["a"]])], ids=["int64", "list"])
def test_other_types_are_refused_by_name(column: pa.Array) -> None:
    with pytest.raises(DataError, match=rf"found type {column.type}"):
        usable_texts(column)


def test_a_bad_record_keeps_its_place_as_an_empty_document() -> None:
    tokenizer = make_tokenizer()
    documents = TextTask(tokenizer, make_reference()).encode(pa.array(["def", None, "x"]))
    assert documents.num_documents == 3
    assert documents.lengths.tolist() == [1, 0, 1]
    assert documents.is_bad.tolist() == [False, True, False]


def test_a_pipeline_makes_batches_of_one_shape_whatever_it_is_given() -> None:
    tokenizer = make_tokenizer()
    pipeline = make_pipeline(make_data(task="pretrain", max_length=8), tokenizer, make_reference(), num_rows=3)
    for texts in (["a", "b", "c"], ["a"], [], [None, "x" * 500, ""]):
        batch = pipeline.batch(pa.array(texts, pa.string()))
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
        assert {(array.shape, str(array.dtype)) for array in batch.values()} == {((3, 8), "int32")}
    with pytest.raises(ValueError, match="4 records for 3 rows"):
        pipeline.batch(pa.array(["a"] * 4))


def test_a_batch_cut_from_many_documents_is_the_batch_of_those_records() -> None:
    tokenizer = make_tokenizer()
    pipeline = make_pipeline(make_data(task="pretrain", max_length=8), tokenizer, make_reference(), num_rows=2)
    texts = pa.array(["def f", "class A:\n    pass", None, "return " * 20])
    documents = pipeline.encode(texts)
    for begin, batch in zip((0, 2), pipeline.padded(documents), strict=True):
        rows = batch.arrays
        alone = pipeline.batch(texts.slice(begin, 2))
        assert {name: array.tolist() for name, array in rows.items()} == {
            name: array.tolist() for name, array in alone.items()
        }
