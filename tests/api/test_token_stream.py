"""create_streaming_dataset: every row once over all readers, fixed shapes, exact resume, from every kind of source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.builders import (
    generated,
    hub_like,
    in_memory,
    make_tokenizer,
    row_numbers,
    streaming,
    texts,
)
from tpuworker.api import create_streaming_dataset
from tpuworker.errors import DataError, InputError, SpecError

LENGTH = 12
ROWS = 100
SOURCES: dict[str, Callable[[Path], Any]] = {
    "in memory": lambda _: in_memory(ROWS),
    "a selection in another order": lambda _: in_memory(ROWS * 2).select(range(ROWS)).shuffle(seed=1),
    "with a transform": lambda _: in_memory(ROWS).with_transform(lambda batch: {"text": batch["text"]}),
    "streaming": lambda _: streaming(ROWS),
    "mapped stream": lambda _: streaming(ROWS).map(lambda row: {"text": row["text"]}),
    "generator": lambda _: generated(ROWS),
    "directory like a hub's": lambda path: hub_like(path, [30, 0, 1, 69]),
    "pattern of files": lambda path: hub_like(path, [30, 0, 1, 69]) + "/data/*.parquet",
}
IS_STREAM = {"streaming", "mapped stream", "generator"}


def make_stream(source: Any, **options: Any) -> Any:
    return create_streaming_dataset(
        source, "train", make_tokenizer(), LENGTH, **{"seed": 3, "buffer_size": 30} | options
    )


def numbers_of(stream: Any) -> list[int]:
    return row_numbers([row["input_ids"] for row in stream])


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return SOURCES[request.param](tmp_path)


def test_every_row_comes_once_over_all_readers_and_each_has_as_many(source: Any) -> None:
    parts = [numbers_of(make_stream(source, world_size=3, rank=rank)) for rank in range(3)]
    assert [len(part) for part in parts] == [ROWS // 3] * 3
    assert len({number for part in parts for number in part}) == ROWS // 3 * 3
    assert numbers_of(make_stream(source)) != list(range(ROWS))


def test_a_row_is_what_the_tokenizer_makes_of_the_text_and_nothing_else(source: Any) -> None:
    wanted = make_tokenizer()(texts(ROWS), padding="max_length", truncation=True, max_length=LENGTH)
    rows = list(make_stream(source))
    assert {tuple(row) for row in rows} == {("input_ids", "attention_mask")}
    assert {(row["input_ids"].dtype, row["input_ids"].shape) for row in rows} == {(np.dtype(np.int32), (LENGTH,))}
    by_number = dict(zip(row_numbers([row["input_ids"] for row in rows]), rows, strict=True))
    for number in range(ROWS):
        assert by_number[number]["input_ids"].tolist() == wanted["input_ids"][number]
        assert by_number[number]["attention_mask"].tolist() == wanted["attention_mask"][number]


def test_a_resumed_run_goes_on_with_the_very_next_row_and_so_does_a_resumed_one(source: Any) -> None:
    whole = numbers_of(make_stream(source))
    first = make_stream(source)
    rows = iter(first)
    taken = row_numbers([next(rows)["input_ids"] for _ in range(37)])
    second = make_stream(source)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rows = iter(second)
    taken += row_numbers([next(rows)["input_ids"] for _ in range(20)])
    third = make_stream(source)
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))
    assert taken + numbers_of(third) == whole


def test_a_pass_has_another_order_than_the_one_before_and_set_epoch_brings_it_back(source: Any) -> None:
    stream = make_stream(source)
    first, second = numbers_of(stream), numbers_of(stream)
    assert sorted(first) == sorted(second)
    assert first != second
    again = make_stream(source)
    again.set_epoch(1)
    assert numbers_of(again) == second


def test_the_seed_is_the_key_of_the_order(source: Any) -> None:
    assert numbers_of(make_stream(source, seed=4)) != numbers_of(make_stream(source, seed=3))


def test_readers_have_equal_states(source: Any) -> None:
    states = []
    for rank in range(2):
        stream = make_stream(source, world_size=2, rank=rank)
        rows = iter(stream)
        for _ in range(11):
            next(rows)
        states.append(stream.state_dict())
    assert states[0] == states[1]


@settings(max_examples=15, deadline=None)
@given(num_rows=st.integers(1, 60), world_size=st.integers(1, 7), seed=st.integers(0, 9), buffer=st.integers(1, 70))
def test_any_world_shares_any_number_of_rows_evenly(num_rows: int, world_size: int, seed: int, buffer: int) -> None:
    source = in_memory(num_rows)
    if num_rows < world_size:
        with pytest.raises(InputError, match="one global batch"):
            numbers_of(make_stream(source, world_size=world_size, rank=0))
        return
    parts = [
        numbers_of(make_stream(source, seed=seed, buffer_size=buffer, world_size=world_size, rank=rank))
        for rank in range(world_size)
    ]
    assert {len(part) for part in parts} == {num_rows // world_size}
    assert len({number for part in parts for number in part}) == num_rows // world_size * world_size


def test_a_split_of_a_directory_is_found_and_a_wrong_one_refused_with_those_there_are(tmp_path: Path) -> None:
    hub_like(tmp_path, [10])
    hub_like(tmp_path, [5], split="test")
    stream = create_streaming_dataset(str(tmp_path), "test", make_tokenizer(), LENGTH, 0, 10)
    assert stream.num_rows == 5
    with pytest.raises(InputError, match=r"split: found 'eval'; wanted one of test, train|one of train, test"):
        create_streaming_dataset(str(tmp_path), "eval", make_tokenizer(), LENGTH, 0, 10)


def test_a_bad_text_is_named_by_its_row_or_masked() -> None:
    source = datasets.Dataset.from_dict({"text": ["one row", None, "two rows"]})
    with pytest.raises(DataError, match=r"dataset, row 2: found null"):
        list(make_stream(source))
    rows = list(make_stream(source, on_bad_record="mask"))
    assert sorted(int(row["attention_mask"].sum()) > 1 for row in rows) == [False, True, True]
    stream = source.to_iterable_dataset()
    with pytest.raises(DataError, match=r"row \d: found null"):
        list(make_stream(stream))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}), "1 splits: train"),
        (["a", "b"], "found a list; wanted a name or an object of the datasets library"),
        (datasets.Dataset.from_dict({"words": ["a"]}), "found columns words; wanted a column 'text' or 'data'"),
        (datasets.Dataset.from_dict({"text": []}), "found no rows"),
        ("there/is/no/such-*.parquet", "found no file"),
    ],
)
def test_what_is_no_text_of_one_split_is_refused_with_what_it_is(source: Any, words: str) -> None:
    with pytest.raises((SpecError, InputError), match=words):
        make_stream(source)


def test_a_stream_that_is_split_already_is_refused() -> None:
    from datasets.distributed import split_dataset_by_node

    part = split_dataset_by_node(streaming(10), rank=0, world_size=2)
    with pytest.raises(SpecError, match="split_dataset_by_node"):
        make_stream(part)


def test_arguments_are_refused_by_their_own_names() -> None:
    with pytest.raises(SpecError) as refusal:
        create_streaming_dataset(in_memory(3), "train", make_tokenizer(), 0, 1, 0)
    assert {fault.path for fault in refusal.value.faults} == {"max_length", "shuffle.buffer_size"}


def test_a_state_of_other_data_is_refused_with_every_difference() -> None:
    state = make_stream(in_memory(100)).state_dict()
    other = make_stream(in_memory(50))
    with pytest.raises(DataError) as refusal:
        other.load_state_dict(state)
    assert {"source 0: rows", "source 0: content"} <= {f.path.partition(": ")[2] for f in refusal.value.faults}
    with pytest.raises(DataError, match="a place in rows of known number"):
        make_stream(streaming(100)).load_state_dict(state)
    with pytest.raises(DataError, match="what state_dict"):
        other.load_state_dict({"epoch": 3})


def test_an_iterator_that_was_begun_before_a_state_was_loaded_does_not_end_in_silence() -> None:
    stream = make_stream(in_memory(100))
    rows = iter(stream)
    next(rows)
    stream.load_state_dict(stream.state_dict())
    with pytest.raises(RuntimeError, match="a state was loaded"):
        next(rows)


def test_an_error_of_the_stream_reaches_the_loop_as_it_is() -> None:
    def broken(row: dict[str, Any]) -> dict[str, Any]:
        if row["other"] == 60:
            raise ArithmeticError("row sixty")
        return row

    with pytest.raises(ArithmeticError, match="row sixty"):
        list(make_stream(streaming(100).map(broken)))


def test_memory_holds_a_bounded_part_of_a_stream() -> None:
    most_read = 0

    def count() -> Any:
        nonlocal most_read
        for number in range(10_000):
            most_read = number
            yield {"text": f"row {number}"}

    stream = make_stream(datasets.IterableDataset.from_generator(count), buffer_size=10)
    next(iter(stream))
    assert most_read < 9_000
