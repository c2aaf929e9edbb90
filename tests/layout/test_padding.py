"""Padded rows: the library's own padding and truncation, to the last id; and what it leaves open."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from tests.tokens.builders import make_reference, make_tokenizer
from tests.tokens.families import FAMILIES
from tpuworker.layout.pad import ARRAYS, PaddedBatches
from tpuworker.layout.rows import RowBuffers, Rows, TokenAccount
from tpuworker.tasks.text import PretrainTask, TextTask
from tpuworker.tokens.documents import BadRecord, Documents

import pyarrow as pa  # isort: skip

PAD, BEGIN, END = 90, 91, 92


def make_documents(*contents: list[int], **fields: object) -> Documents:
    offsets = np.cumsum([0, *map(len, contents)]).astype(np.int64)
    return Documents(np.array(list(chain.from_iterable(contents)), np.int32), offsets, **fields)  # type: ignore[arg-type]


def padded(documents: Documents, max_length: int, num_rows: int | None = None, **options: object) -> Rows:
    return padded_batches(documents, max_length, num_rows or documents.num_documents, **options)[0]


def padded_batches(documents: Documents, max_length: int, num_rows: int, **options: object) -> list[Rows]:
    batches = PaddedBatches(documents, (num_rows, max_length), **{"pad_id": PAD} | options)  # type: ignore[arg-type]
    buffers = RowBuffers(ARRAYS, num_rows, max_length)
    made = []
    for number in range(batches.num_batches):
        arrays = buffers.take()
        for array in arrays.values():
            array.fill(-7)  # a buffer that was used before
        made.append(batches.write(number, arrays))
    return made


def listed(rows: Rows, name: str) -> list[list[int]]:
    return rows.arrays[name].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_text_rows_are_those_of_the_library(family: str, side: str) -> None:
    json_text = FAMILIES[family]()
    tokenizer = make_tokenizer(json_text)
    hf = HFTokenizer.from_str(json_text)
    texts = ["", "a", "def f(x):\n    return x", "word " * 40, "naïve façade 東京", " lead", "\n\n\n"]
    for max_length in (3, 8, 33, 300):
        hf.enable_truncation(max_length, direction=side)
        hf.enable_padding(length=max_length, pad_id=tokenizer.pad_id)
        wanted = hf.encode_batch(texts)
        documents = TextTask(tokenizer, make_reference(json_text)).encode(pa.array(texts))
        rows = padded(documents, max_length, pad_id=tokenizer.pad_id, truncation_side=side)
        assert listed(rows, "input_ids") == [encoding.ids for encoding in wanted]
        for row, encoding in zip(listed(rows, "attention_mask"), wanted, strict=True):
            assert row == encoding.attention_mask or (
                sum(encoding.attention_mask) == 0 and row == [1] + [0] * (max_length - 1)
            )


def test_pads_carry_no_label_and_a_real_end_token_equal_to_the_pad_does() -> None:
    rows = padded(make_documents([1, PAD], [1, 2, 3]), 4)
    assert listed(rows, "input_ids") == [[1, PAD, PAD, PAD], [1, 2, 3, PAD]]
    assert listed(rows, "attention_mask") == [[1, 1, 0, 0], [1, 1, 1, 0]]
    assert listed(rows, "labels") == [[1, PAD, -100, -100], [1, 2, 3, -100]]


def test_pads_can_keep_their_label() -> None:
    rows = padded(make_documents([1], []), 3, pad_labels="keep")
    assert listed(rows, "labels") == [[1, PAD, PAD], [-100, -100, -100]]


def test_a_long_document_is_cut_on_the_side_asked_for() -> None:
    assert listed(padded(make_documents([1, 2, 3, 4, 5]), 3), "input_ids") == [[1, 2, 3]]
    assert listed(padded(make_documents([1, 2, 3, 4, 5]), 3, truncation_side="left"), "input_ids") == [[3, 4, 5]]


def test_a_document_cut_at_its_end_does_not_end_unless_the_task_says_so() -> None:
    fields = {"prefix": (BEGIN,), "suffix": (END,)}
    assert listed(padded(make_documents([1, 2, 3, 4, 5], **fields), 4), "input_ids") == [[BEGIN, 1, 2, 3]]
    closed = make_documents([1, 2, 3, 4, 5], close_cut=True, **fields)
    assert listed(padded(closed, 4), "input_ids") == [[BEGIN, 1, 2, END]]
    assert listed(padded(closed, 4, truncation_side="left"), "input_ids") == [[BEGIN, 4, 5, END]]


def test_a_document_cut_inside_its_end_keeps_what_has_room() -> None:
    rows = padded(make_documents([1, 2, 3], prefix=(BEGIN,), suffix=(END, PAD)), 5)
    assert listed(rows, "input_ids") == listed(rows, "labels") == [[BEGIN, 1, 2, 3, END]]
    assert listed(rows, "attention_mask") == [[1] * 5]
    assert (rows.account.delivered, rows.account.cut) == (5, 1)


def test_a_document_that_just_fits_keeps_its_end() -> None:
    rows = padded(make_documents([1, 2], [1, 2, 3], prefix=(BEGIN,), suffix=(END,)), 4)
    assert listed(rows, "input_ids") == [[BEGIN, 1, 2, END], [BEGIN, 1, 2, 3]]


def test_only_trainable_tokens_carry_labels() -> None:
    flags = np.array([False, True, False, True, True])
    rows = padded(make_documents([1, 2, 3], [4, 5], trainable=flags), 4)
    assert listed(rows, "labels") == [[-100, 2, -100, -100], [4, 5, -100, -100]]
    assert rows.account.trainable == 3


@pytest.mark.parametrize("name", ARRAYS)
def test_rows_without_a_document_attend_to_one_pad_and_learn_nothing(name: str) -> None:
    documents = make_documents([], [1], bad=(BadRecord(0, "null"),), prefix=(BEGIN,), suffix=(END,))
    rows = padded(documents, 3, num_rows=3)
    wanted = {
        "input_ids": [[PAD, PAD, PAD], [BEGIN, 1, END], [PAD, PAD, PAD]],
        "attention_mask": [[1, 0, 0], [1, 1, 1], [1, 0, 0]],
        "labels": [[-100] * 3, [BEGIN, 1, END], [-100] * 3],
    }
    assert listed(rows, name) == wanted[name]


@given(
    contents=st.lists(st.lists(st.integers(0, 80), max_size=9), max_size=20),
    num_rows=st.integers(1, 7),
    options=st.fixed_dictionaries(
        {"truncation_side": st.sampled_from(["right", "left"]), "pad_labels": st.sampled_from(["mask", "keep"])}
    ),
    seed=st.one_of(st.none(), st.integers(0, 9)),
    template=st.sampled_from([((), ()), ((BEGIN,), ()), ((BEGIN,), (END, END))]),
)
def test_a_row_and_its_part_of_the_account_do_not_depend_on_what_it_is_written_with(
    contents: list[list[int]],
    num_rows: int,
    options: dict[str, object],
    seed: int | None,
    template: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    fields = {"prefix": template[0], "suffix": template[1]}
    size = sum(map(len, contents))
    flags = None if seed is None else np.random.default_rng(seed).random(size) < 0.5
    documents = make_documents(*contents, trainable=flags, **fields)
    batches = padded_batches(documents, 6, num_rows, **options)
    assert len(batches) == max(1, -(-len(contents) // num_rows))
    ends = np.cumsum([0, *map(len, contents)]).tolist()
    alone = [
        padded(make_documents(content, trainable=None if flags is None else flags[begin:end], **fields), 6, **options)
        for content, begin, end in zip(contents, ends[:-1], ends[1:], strict=True)
    ]
    nothing = padded(make_documents(), 6, num_rows=1, **options)
    alone += [nothing] * (len(batches) * num_rows - len(alone))
    for name in ARRAYS:
        together = [row for batch in batches for row in listed(batch, name)]
        assert together == [row for batch in alone for row in listed(batch, name)]
    for number, batch in enumerate(batches):
        mine = alone[number * num_rows : (number + 1) * num_rows]
        assert batch.account == sum((rows.account for rows in mine), TokenAccount())


def test_rows_that_are_longer_than_a_block_of_the_copy_are_whole() -> None:
    contents = [list(range(90_000)), list(range(70_000)), list(range(10))]
    rows = padded(make_documents(*contents), 80_000)
    assert listed(rows, "input_ids") == [
        contents[0][:80_000], contents[1] + [PAD] * 10_000, contents[2] + [PAD] * 79_990,
    ]  # fmt: skip


@given(
    contents=st.lists(st.lists(st.integers(0, 80), max_size=12), min_size=1, max_size=6),
    max_length=st.integers(4, 9),
    side=st.sampled_from(["right", "left"]),
    num_ends=st.integers(0, 1),
)
def test_the_account_is_closed_and_every_row_is_a_part_of_its_document(
    contents: list[list[int]], max_length: int, side: str, num_ends: int
) -> None:
    documents = make_documents(*contents, prefix=(BEGIN,), suffix=(END,) * num_ends)
    rows = padded(documents, max_length, truncation_side=side)
    account = rows.account
    assert account.tokenised == sum(len(content) + 1 + num_ends for content in contents)
    assert account.delivered + account.cut + account.dropped == account.tokenised
    assert account.delivered == sum(map(sum, listed(rows, "attention_mask")))
    for content, ids, mask in zip(contents, listed(rows, "input_ids"), listed(rows, "attention_mask"), strict=True):
        body = [BEGIN, *content, *[END] * num_ends]
        kept = ids[: sum(mask)]
        assert ids[sum(mask) :] == [PAD] * (max_length - sum(mask))
        assert kept == (body if len(body) <= max_length else kept)
        assert kept[1:] == (body[1:][: len(kept) - 1] if side == "right" else body[len(body) - len(kept) + 1 :])


def test_buffers_are_used_again_only_when_nobody_holds_them() -> None:
    buffers = RowBuffers(("ids",), 2, 3)
    first = buffers.take()["ids"]
    address = first.ctypes.data
    view = first[0]
    assert buffers.take()["ids"].ctypes.data != address
    del first
    assert buffers.take()["ids"].ctypes.data != address
    del view
    addresses = {buffers.take()["ids"].ctypes.data for _ in range(4)}
    assert address in addresses


def test_documents_of_pretraining_end_with_one_end_token() -> None:
    tokenizer = make_tokenizer()
    documents = PretrainTask(tokenizer, make_reference()).encode(pa.array(["a", "b"]))
    assert documents.suffix == (tokenizer.eos_id,)
    ending = make_tokenizer(FAMILIES["unigram"]())
    assert PretrainTask(ending, make_reference(FAMILIES["unigram"]())).encode(pa.array(["a"])).suffix == (1,)
