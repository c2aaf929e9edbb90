"""Packed rows: nothing lost, nothing doubled, nothing leaks; and the arithmetic that places documents."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layout.test_padding import BEGIN, END, PAD, make_documents
from tpuworker.data.lane_rows import LaneRows, Waiting, stream_rows
from tpuworker.layout.pack import ARRAYS, PackedBatches
from tpuworker.layout.pieces import Pieces, count_rows, pack_window, pack_windows
from tpuworker.layout.rows import RowBuffers, Rows, TokenAccount
from tpuworker.tokens.documents import BadRecord, Documents

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def packed(documents: Documents, pieces: Pieces, capacity: int, num_rows: int | None = None, **options: Any) -> Rows:
    arrays = RowBuffers(ARRAYS, num_rows or max(1, pieces.num_rows), capacity).take()
    for array in arrays.values():
        array.fill(-7)  # a buffer that was used before
    batches = PackedBatches(documents, pieces, arrays["input_ids"].shape, pad_id=PAD, **options)
    assert batches.num_batches == 1
    return batches.write(0, arrays)


def pack_all(documents: Documents, capacity: int, num_rows: int | None = None, **options: Any) -> Rows:
    side = {"truncation_side": options["truncation_side"]} if "truncation_side" in options else {}
    pieces = pack_window(documents.lengths, capacity, overflow=options.pop("overflow", "split"), **side)
    return packed(documents, pieces, capacity, num_rows, **options)


def listed(rows: Rows, name: str) -> list[list[int]]:
    return rows.arrays[name].tolist()  # type: ignore[no-any-return]


def segments_of(rows: Rows) -> list[list[int]]:
    """The ids of every segment of every row."""
    found = []
    for ids, segments in zip(rows.arrays["input_ids"], rows.arrays["segment_ids"], strict=True):
        found += [ids[segments == number].tolist() for number in range(1, int(segments.max()) + 1)]
    return found


def test_two_documents_share_a_row() -> None:
    rows = pack_all(make_documents([1, 2, 3], [4, 5]), 6)
    assert listed(rows, "input_ids") == [[1, 2, 3, 4, 5, PAD]]
    assert listed(rows, "segment_ids") == [[1, 1, 1, 2, 2, 0]]
    assert listed(rows, "position_ids") == [[0, 1, 2, 0, 1, 0]]
    assert listed(rows, "labels") == [[-100, 2, 3, -100, 5, -100]]


def test_a_document_longer_than_a_row_is_split_and_its_rest_shares_a_row() -> None:
    rows = pack_all(make_documents([1, 2, 3, 4, 5], [6]), 4)
    assert listed(rows, "input_ids") == [[1, 2, 3, 4], [5, 6, PAD, PAD]]
    assert listed(rows, "segment_ids") == [[1, 1, 1, 1], [1, 2, 0, 0]]
    assert listed(rows, "position_ids") == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert rows.account == TokenAccount(tokenised=6, delivered=6, trainable=3, slots=8)


@pytest.mark.parametrize(
    ("side", "closed", "row"),
    [
        ("right", False, [BEGIN, 1, 2, 3]),
        ("right", True, [BEGIN, 1, 2, END]),
        ("left", False, [BEGIN, 4, 5, END]),
    ],
)
def test_a_document_longer_than_a_row_is_cut_on_the_side_asked_for(side: str, closed: bool, row: list[int]) -> None:
    documents = make_documents([1, 2, 3, 4, 5], prefix=(BEGIN,), suffix=(END,), close_cut=closed)
    rows = pack_all(documents, 4, overflow="truncate", truncation_side=side)
    assert listed(rows, "input_ids") == [row]
    assert (rows.account.delivered, rows.account.cut) == (4, 3)


def test_prefix_and_suffix_stand_once_around_a_split_document() -> None:
    documents = make_documents([1, 2, 3, 4, 5], [6], prefix=(BEGIN,), suffix=(END,))
    rows = pack_all(documents, 4)
    assert sorted(segments_of(rows)) == sorted([[BEGIN, 1, 2, 3], [4, 5, END], [BEGIN, 6, END]])


def test_bad_records_take_no_place() -> None:
    documents = make_documents([1], [], [2], prefix=(BEGIN,), bad=(BadRecord(1, "null"),))
    assert segments_of(pack_all(documents, 4)) == [[BEGIN, 1], [BEGIN, 2]]


def test_only_trainable_tokens_carry_labels_and_never_the_first_of_a_piece() -> None:
    documents = make_documents([1, 2, 3], [4, 5], trainable=np.array([True, False, True, True, True]))
    rows = pack_all(documents, 6)
    assert listed(rows, "labels") == [[-100, -100, 3, -100, 5, -100]]
    assert rows.account.trainable == 2


def test_rows_without_pieces_are_pads_without_labels() -> None:
    rows = pack_all(make_documents([1, 2]), 3, num_rows=2, pad_labels="keep")
    assert listed(rows, "input_ids")[1] == [PAD] * 3
    assert listed(rows, "labels") == [[-100, 2, PAD], [-100] * 3]
    assert listed(rows, "segment_ids")[1] == [0, 0, 0]


@given(LENGTHS, st.integers(4, 16), st.integers(0, 2), st.integers(0, 1))
def test_splitting_delivers_every_token_once_and_in_order(
    lengths: list[int], capacity: int, num_before: int, num_after: int
) -> None:
    starts = np.cumsum([0, *lengths])
    contents = [
        list(range(1000 + start, 1000 + start + length)) for start, length in zip(starts, lengths, strict=False)
    ]
    documents = make_documents(*contents, prefix=(BEGIN,) * num_before, suffix=(END,) * num_after)
    rows = pack_all(documents, capacity)
    delivered = list(chain.from_iterable(segments_of(rows)))
    assert sorted(delivered) == sorted(
        [*range(1000, 1000 + sum(lengths)), *[BEGIN] * num_before * len(lengths), *[END] * num_after * len(lengths)]
    )
    for segment in segments_of(rows):
        body = [token for token in segment if token >= 1000]
        assert body == list(range(body[0], body[0] + len(body))) if body else True
    assert rows.account.delivered == rows.account.tokenised == documents.lengths.sum()


@given(LENGTHS, st.integers(4, 16), st.sampled_from(["split", "truncate"]), st.sampled_from(["right", "left"]))
def test_rows_never_overflow_and_the_account_is_closed(
    lengths: list[int], capacity: int, overflow: Any, side: Any
) -> None:
    array = np.array(lengths, np.int64)
    pieces = pack_window(array, capacity, overflow=overflow, truncation_side=side)
    assert (np.bincount(pieces.rows, pieces.lengths, minlength=1) <= capacity).all()
    assert pieces.lengths.sum() + pieces.cut.sum() == array.sum()
    assert (pieces.lengths > 0).all()
    assert set(pieces.rows.tolist()) == set(range(pieces.num_rows))
    rows = packed(make_documents(*[[7] * length for length in lengths]), pieces, capacity, truncation_side=side)
    account = rows.account
    assert account.delivered + account.cut + account.dropped == account.tokenised == array.sum()
    assert account.delivered == int((rows.arrays["segment_ids"] > 0).sum())


@given(LENGTHS, st.integers(4, 16))
def test_documents_that_fit_are_never_split(lengths: list[int], capacity: int) -> None:
    pieces = pack_window(np.array(lengths, np.int64), capacity)
    parts = np.bincount(pieces.documents, minlength=len(lengths))
    assert all(parts[place] == 1 for place, length in enumerate(lengths) if 0 < length <= capacity)


@given(LENGTHS, st.integers(4, 16), st.integers(1, 4), st.sampled_from(["split", "truncate"]), st.booleans())
def test_rows_are_the_same_in_batches_of_any_size(
    lengths: list[int], capacity: int, rows_of_batch: int, overflow: Any, learns_all: bool
) -> None:
    documents = make_documents(
        *[[place] * length for place, length in enumerate(lengths)], prefix=(BEGIN,), suffix=(END,)
    )
    if not learns_all:
        documents = replace(documents, trainable=np.arange(len(documents.ids)) % 3 > 0)
    pieces = pack_window(documents.lengths, capacity, overflow=overflow)
    everything = packed(documents, pieces, capacity)
    batches = PackedBatches(documents, pieces, (rows_of_batch, capacity), pad_id=PAD)
    buffers = RowBuffers(ARRAYS, rows_of_batch, capacity, most_kept=0)
    made = [batches.write(number, buffers.take()) for number in range(batches.num_batches)]
    for name in ARRAYS:
        rows = list(chain.from_iterable(listed(each, name) for each in made))
        assert rows[: pieces.num_rows] == listed(everything, name)[: pieces.num_rows]
    total = sum((each.account for each in made), TokenAccount())
    assert replace(total, slots=0) == replace(everything.account, slots=0)


@given(LENGTHS, st.integers(4, 16), st.integers(0, 5), st.integers(1, 5))
def test_any_rows_can_be_made_alone(lengths: list[int], capacity: int, begin: int, count: int) -> None:
    documents = make_documents(*[[place] * length for place, length in enumerate(lengths)])
    pieces = pack_window(documents.lengths, capacity)
    everything = packed(documents, pieces, capacity)
    begin = min(begin, pieces.num_rows)
    some = pieces.select(begin, begin + count)
    alone = packed(documents, some, capacity)
    for name in ARRAYS:
        assert listed(alone, name)[: some.num_rows] == listed(everything, name)[begin : begin + some.num_rows]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_no_fewer_rows_would_do_than_a_third_more_than_needed(lengths: list[int]) -> None:
    pieces = pack_window(np.array(lengths, np.int64), 12)
    # Best-fit-decreasing is proved to stay below 11/9 of the best plus one bin; the sum is a bound on the best.
    assert pieces.num_rows <= 11 / 9 * _fewest_bins(lengths, 12) + 1


def _fewest_bins(lengths: list[int], capacity: int) -> int:
    best = len(lengths)

    def place(index: int, rooms: list[int]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if index == len(lengths):
            best = len(rooms)
            return
        for bin_number, room in enumerate(rooms):
            if room >= lengths[index]:
                place(index + 1, [*rooms[:bin_number], room - lengths[index], *rooms[bin_number + 1 :]])
        place(index + 1, [*rooms, capacity - lengths[index]])

    place(0, [])
    return best


def test_text_like_lengths_fill_rows_almost_whole() -> None:
    lengths = np.random.default_rng(0).lognormal(6, 1.2, 4096).astype(np.int64) + 1
    for overflow in ("split", "truncate"):
        pieces = [window for _, window in pack_windows(lengths, 1024, overflow=overflow)]  # type: ignore[arg-type]
        delivered = sum(int(window.lengths.sum()) for window in pieces)
        assert delivered / (1024 * sum(window.num_rows for window in pieces)) >= 0.99


def test_rows_are_counted_as_they_are_made() -> None:
    lengths = np.random.default_rng(1).integers(0, 60, 500)
    counted = count_rows(lengths, 32, window_documents=64)
    assert counted.tolist() == [pieces.num_rows for _, pieces in pack_windows(lengths, 32, window_documents=64)]


def test_rows_are_not_sorted_by_length() -> None:
    lengths = np.random.default_rng(2).integers(1, 64, 1024)
    pieces = pack_window(lengths, 64)
    firsts = pieces.documents[np.flatnonzero(np.diff(pieces.rows, prepend=-1))]
    assert (np.diff(firsts) > 0).all()
    assert abs(np.corrcoef(pieces.rows, pieces.lengths)[0, 1]) < 0.5


def rows_of_one_lane(lengths: np.ndarray, offset: int, capacity: int) -> LaneRows:
    """All rows of a lane that stands at an offset."""
    return stream_rows(lanes_of([lengths], [offset]), capacity=capacity, slots=1, most_steps=len(lengths) * 1000)


def lanes_of(lengths: list[np.ndarray], offsets: list[int]) -> Waiting:
    """Lanes with documents of these lengths."""
    lanes = np.repeat(np.arange(len(lengths)), [len(lane) for lane in lengths])
    whole = np.concatenate(lengths)
    documents = Documents(np.zeros(whole.sum(), np.int32), np.concatenate([[0], np.cumsum(whole)]))
    return Waiting.at([(0, offset) for offset in offsets]).with_more(documents, lanes)


@given(st.lists(LENGTHS, min_size=1, max_size=5), st.integers(3, 16), st.integers(1, 3), st.data())
def test_lanes_laid_out_together_have_the_rows_each_would_have_alone(
    lengths: list[list[int]], capacity: int, slots: int, data: st.DataObject
) -> None:
    arrays = [np.array(lane, np.int64) for lane in lengths]
    offsets = [data.draw(st.integers(0, max(0, lane[0] - 1) if len(lane) else 0)) for lane in arrays]
    together = stream_rows(lanes_of(arrays, offsets), capacity=capacity, slots=slots, most_steps=10**6)
    alone = [rows_of_one_lane(lane, offset, capacity) for lane, offset in zip(arrays, offsets, strict=True)]
    assert together.ready.tolist() == [rows.num_steps for rows in alone]
    assert together.num_steps == min(rows.num_steps for rows in alone) // slots
    num_rows, first_document = together.num_steps * slots, 0
    for number, (lane, rows) in enumerate(zip(arrays, alone, strict=True)):
        mine = together.pieces.select(number * num_rows, (number + 1) * num_rows)
        wanted = rows.pieces.select(0, num_rows)
        assert (mine.documents - first_document).tolist() == wanted.documents.tolist()
        for name in ("rows", "begins", "lengths"):
            assert getattr(mine, name).tolist() == getattr(wanted, name).tolist()
        assert together.documents[number].tolist() == rows.documents[0, : num_rows + 1 : slots].tolist()
        assert together.offsets[number].tolist() == rows.offsets[0, : num_rows + 1 : slots].tolist()
        first_document += len(lane)


@given(LENGTHS, st.integers(3, 16), st.integers(0, 10))
def test_a_stream_fills_every_row_and_goes_on_where_it_stopped(lengths: list[int], capacity: int, most: int) -> None:
    array = np.array(lengths, np.int64)
    rows = rows_of_one_lane(array, 0, capacity)
    whole = rows.pieces
    assert whole.num_rows == array.sum() // capacity
    assert np.bincount(whole.rows, whole.lengths, minlength=whole.num_rows).tolist() == [capacity] * whole.num_rows
    stop = min(most, whole.num_rows)
    first, document, token = whole.select(0, stop), int(rows.documents[0, stop]), int(rows.offsets[0, stop])
    second_rows = rows_of_one_lane(array[document:], token, capacity)
    second = second_rows.pieces
    joined = [
        (int(row), int(document), int(begin), int(length))
        for pieces, row_shift, document_shift in ((first, 0, 0), (second, first.num_rows, document))
        for row, document, begin, length in zip(
            pieces.rows + row_shift, pieces.documents + document_shift, pieces.begins, pieces.lengths, strict=True
        )
    ]
    assert joined == list(zip(whole.rows, whole.documents, whole.begins, whole.lengths, strict=True))
    left = array[rows.documents[0, -1] :].sum() - rows.offsets[0, -1]
    resumed = document + int(second_rows.documents[0, -1])
    assert array[resumed:].sum() - second_rows.offsets[0, -1] == left < capacity


def test_a_stream_of_documents_ends_each_with_its_own_end() -> None:
    documents = make_documents([1, 2, 3], [4], [5, 6], suffix=(END,))
    rows = rows_of_one_lane(documents.lengths, 0, 4)
    assert segments_of(packed(documents, rows.pieces, 4)) == [[1, 2, 3, END], [4, END], [5, 6]]
    assert (rows.documents[0, -1], rows.offsets[0, -1]) == (2, 2)


@pytest.mark.jax
def test_no_document_sees_another_in_a_real_attention_model() -> None:
    import jax.numpy as jnp

    documents = make_documents([11, 12, 13, 14], [21, 22, 23], [31, 32])
    rows = pack_all(documents, 12)
    changed = make_documents([11, 55, 13, 14], [21, 22, 23], [31, 32])
    other = pack_all(changed, 12)
    before, after = (
        _logits(jnp.asarray(made.arrays["input_ids"]), made.arrays["segment_ids"], made.arrays["position_ids"])
        for made in (rows, other)
    )
    segments = rows.arrays["segment_ids"][0]
    first, others = segments == segments[rows.arrays["input_ids"][0].tolist().index(11)], segments > 0
    assert np.array_equal(before[0][others & ~first], after[0][others & ~first])
    assert not np.allclose(before[0][first][1:], after[0][first][1:])
    # Alone, a document gives the logits it gives in company: positions start at 0 in each.
    alone = pack_all(make_documents([21, 22, 23]), 12)
    lonely = _logits(jnp.asarray(alone.arrays["input_ids"]), alone.arrays["segment_ids"], alone.arrays["position_ids"])
    in_company = before[0][segments == segments[rows.arrays["input_ids"][0].tolist().index(21)]]
    assert np.allclose(lonely[0][:3], in_company, atol=1e-5)


def _logits(ids: Any, segments: Any, positions: Any) -> np.ndarray:
    """One causal attention layer that attends inside segments, with learnt positions, weights drawn by a fixed seed."""
    import jax
    import jax.numpy as jnp

    width = 16
    keys = iter(jax.random.split(jax.random.key(0), 6))
    embedding, places = (jax.random.normal(next(keys), (100, width)) for _ in range(2))
    query, key, value, out = (jax.random.normal(next(keys), (width, width)) / 4 for _ in range(4))
    hidden = embedding[ids] + places[jnp.asarray(positions)]
    scores = jnp.einsum("bqd,bkd->bqk", hidden @ query, hidden @ key)
    same = (segments[:, :, None] == segments[:, None, :]) & (segments[:, :, None] > 0)
    causal = np.tril(np.ones((ids.shape[1], ids.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(same & causal, scores, -1e9), axis=-1)
    hidden = hidden + jnp.einsum("bqk,bkd->bqd", weights, hidden @ value) @ out
    return np.asarray(hidden @ embedding.T)
