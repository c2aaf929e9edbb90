"""Packed rows through the loader: known steps or a stream, exact resume, the same rows on any number of hosts."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.builders import Host, data_job
from tpuworker.data.cursor import Cursor
from tpuworker.data.index import Index
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.data.measuring import measured
from tpuworker.data.plan import make_data_plan
from tpuworker.errors import DataError, InputError
from tpuworker.layout.pack import ARRAYS, PackedBatches
from tpuworker.layout.pieces import Pieces, pack_window
from tpuworker.spec import TPUJob
from tpuworker.tokens.documents import BadRecord, Documents

LENGTH = 32
BATCH = 8
NUM_DOCUMENTS = 700


@dataclass(frozen=True)
class NumberPipeline:
    """A document of n tokens of its own id; text is "id n"."""

    rows: int
    overflow: Any = "split"
    records_per_call: int = 64
    fingerprint: dict[str, str] = field(default_factory=lambda: {"tokenizer": "numbers", "layout": "pack"})

    def encode(self, column: Any) -> Documents:
        pairs = [(0, 0) if text is None else tuple(map(int, text.split())) for text in column.to_pylist()]
        ids = np.repeat([number for number, _ in pairs], [length for _, length in pairs]).astype(np.int32)
        offsets = np.cumsum([0, *(length for _, length in pairs)]).astype(np.int64)
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        return Documents(ids, offsets, bad=tuple(BadRecord(int(row), "null") for row in nulls))

    def plan(self, lengths: np.ndarray) -> Pieces:
        return pack_window(lengths, LENGTH, overflow=self.overflow)

    def packed(self, documents: Documents, pieces: Pieces) -> Iterator[Any]:
        batches = PackedBatches(documents, pieces, (self.rows, LENGTH), pad_id=0)
        for number in range(batches.num_batches):
            yield batches.write(number, {name: np.empty((self.rows, LENGTH), np.int32) for name in ARRAYS})

    def batch(self, column: Any) -> Any:
        raise AssertionError("packed rows are not padded ones")


def length_of(number: int) -> int:
    return 1 + number * 7919 % 45


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("packed")
    edges = [0, 90, 91, 400, NUM_DOCUMENTS]
    for part, (first, stop) in enumerate(itertools.pairwise(edges)):
        rows = [json.dumps({"text": f"{n + 1} {length_of(n + 1)}"}) for n in range(first, stop)]
        (directory / f"{part}.jsonl").write_text("\n".join(rows) + "\n")
    return f"{directory}/*.jsonl"


def pack_job(corpus: str, form: str, hosts: int = 1, **data: Any) -> TPUJob:
    overflow = data.pop("overflow", "split")
    return data_job(
        corpus,
        hosts=hosts,
        batch=BATCH,
        **{
            "layout": "pack",
            "packing": {"form": form, "overflow": overflow},
            "max_length": LENGTH,
            "shuffle": {"lanes": BATCH, "seed": 2},
            **data,
        },
    )


def loader_of(job: TPUJob, index: Index, rank: int, **options: Any) -> Loader:
    pipeline = NumberPipeline(job.rows_per_host, job.spec.data.packing.overflow)
    host = Host(rank, job.num_hosts)
    # Every host measures its share; in this test one after the other, so the shares are collected first.
    return Loader(job, host, whole_index(job, index, pipeline), pipeline, **options)


def whole_index(job: TPUJob, index: Index, pipeline: NumberPipeline) -> Index:
    """Measure as several hosts do: each tells its share, then one of them is told all shares."""
    told: list[bytes] = []

    def tell(tag: str, mine: bytes) -> list[bytes]:
        if tag == "known token counts":
            return [b""]
        told.append(mine)
        raise InterruptedError

    for rank in range(job.num_hosts):
        with contextlib.suppress(InterruptedError):
            return measured(job, index, pipeline, Host(rank, job.num_hosts), exchange=tell)
    answers = {"known token counts": [b""], "token counts": told}
    return measured(job, index, pipeline, Host(0, job.num_hosts), exchange=lambda tag, _: answers[tag])


def global_rows(job: TPUJob, index: Index, steps: int | None = None, **options: Any) -> tuple[list[Any], list[Cursor]]:
    """Return (ids, segments) of every global batch as lists, and the cursor of the whole job after each."""
    parts = []
    for rank in range(job.num_hosts):
        with loader_of(job, index, rank, **options) as loader:
            count = loader.plan.num_steps - loader.cursor.step if steps is None else steps
            parts.append([next(loader) for _ in range(count)])
    batches = [
        [np.concatenate([part.arrays[name] for part in step]).tolist() for name in ("input_ids", "segment_ids")]
        for step in zip(*parts, strict=True)
    ]
    return batches, [Cursor.merged([part.cursor for part in step]) for step in zip(*parts, strict=True)]


def documents_in(batches: list[Any]) -> Counter[int]:
    """Return the tokens of each document over all batches."""
    return Counter(token for ids, _ in batches for row in ids for token in row if token)


@pytest.mark.parametrize("epochs", [1, 2])
def test_exact_packing_knows_its_steps_and_gives_every_document_whole(corpus: str, epochs: int) -> None:
    job = pack_job(corpus, "exact", epochs=epochs, remainder="mask")
    batches, _ = global_rows(job, build_index(job))
    assert documents_in(batches) == {n: epochs * length_of(n) for n in range(1, NUM_DOCUMENTS + 1)}
    slots = sum(len(row) for ids, _ in batches for row in ids)
    assert sum(documents_in(batches).values()) / slots > 0.97


def test_documents_longer_than_a_row_are_cut_under_truncate(corpus: str) -> None:
    job = pack_job(corpus, "exact", overflow="truncate", remainder="mask")
    batches, _ = global_rows(job, build_index(job))
    assert documents_in(batches) == {n: min(LENGTH, length_of(n)) for n in range(1, NUM_DOCUMENTS + 1)}


@pytest.mark.parametrize("form", ["exact", "stream"])
@pytest.mark.parametrize("overflow", ["split", "truncate"])
@pytest.mark.parametrize("order", ["shuffled", "sequential"])
def test_packed_rows_are_the_same_on_any_number_of_hosts(corpus: str, form: str, overflow: str, order: str) -> None:
    options = {"overflow": overflow, "shuffle": {"lanes": BATCH, "seed": 4, "order": order}, "train": {"steps": 40}}
    index = build_index(pack_job(corpus, form))
    alone, _ = global_rows(pack_job(corpus, form, **options), index)
    assert len(alone) == 40
    for hosts in (2, 8):
        assert global_rows(pack_job(corpus, form, hosts, **options), index)[0] == alone


@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_a_packed_run_resumes_exactly_on_other_hosts_and_depths(corpus: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(["exact", "stream"]))
    options = {"overflow": data.draw(st.sampled_from(["split", "truncate"])), "epochs": 2, "train": {"steps": 60}}
    index = build_index(pack_job(corpus, form))
    whole, cursors = global_rows(pack_job(corpus, form, **options), index)
    stop = data.draw(st.integers(1, 59))
    again = data.draw(st.integers(stop, 59))
    first, second = (data.draw(st.sampled_from([1, 2, 4, 8])) for _ in range(2))
    job = pack_job(corpus, form, first, **options)
    middle, later = global_rows(job, index, again - stop, start=Cursor.from_json(cursors[stop - 1].to_json()))
    assert middle == whole[stop:again]
    cursor = later[-1] if later else cursors[stop - 1]
    rest, _ = global_rows(
        pack_job(corpus, form, second, **options), index, start=cursor, depth=data.draw(st.integers(1, 5))
    )
    assert rest == whole[again:]


def test_a_stream_fills_every_place_and_goes_round_each_lane_in_turn(corpus: str) -> None:
    job = pack_job(corpus, "stream", train={"steps": 130})
    batches, _ = global_rows(job, build_index(job))
    tokens = documents_in(batches)
    assert sum(tokens.values()) == 130 * BATCH * LENGTH
    passes = [tokens[n] / length_of(n) for n in range(1, NUM_DOCUMENTS + 1)]
    # Lanes go round at their own pace: none is two passes ahead of another.
    assert min(passes) >= 1
    assert max(passes) <= 3.01


def test_a_stream_under_truncate_splits_no_document(corpus: str) -> None:
    job = pack_job(corpus, "stream", overflow="truncate", train={"steps": 40})
    batches, _ = global_rows(job, build_index(job))
    for ids, segments in batches:
        for row, marks in zip(ids, segments, strict=True):
            for mark in range(1, max(marks) + 1):
                piece = [token for token, here in zip(row, marks, strict=True) if here == mark]
                assert len(set(piece)) == 1
                assert len(piece) == min(LENGTH, length_of(piece[0]))


def test_a_stream_decodes_a_unit_about_once_for_each_visit_of_a_lane(tmp_path: Path) -> None:
    """A call that asks nothing of a lane must not let its units go: six times as many were decoded."""
    texts = [f"{n + 1} {length_of(n + 1)}" for n in range(1600)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=50)
    shuffle = {"lanes": BATCH, "seed": 2, "buffer_size": 320}
    job = pack_job(f"{tmp_path}/*.parquet", "stream", shuffle=shuffle, train={"steps": 200})
    pipeline = NumberPipeline(job.rows_per_host, records_per_call=8)
    with Loader(job, Host(0, 1), build_index(job), pipeline) as loader:
        assert len(list(loader)) == 200
        stages = loader.stats().stages
    assert stages["read"].rows < stages["decode"].rows < 1.5 * stages["read"].rows


def test_a_stream_without_steps_is_refused_with_the_two_ways_out(corpus: str) -> None:
    job = pack_job(corpus, "stream")
    with pytest.raises(InputError, match=r"spec\.train\.steps: found no number of steps.*set packing\.form to exact"):
        make_data_plan(job, build_index(job))


def test_a_stream_can_be_resumed_for_more_steps_than_it_began_with(corpus: str) -> None:
    index = build_index(pack_job(corpus, "stream"))
    short, cursors = global_rows(pack_job(corpus, "stream", train={"steps": 5}), index)
    longer, _ = global_rows(pack_job(corpus, "stream", train={"steps": 9}), index)
    rest, _ = global_rows(pack_job(corpus, "stream", train={"steps": 9}), index, start=cursors[-1])
    assert short + rest == longer


def test_a_cursor_of_one_host_is_refused_on_others(corpus: str) -> None:
    job = pack_job(corpus, "stream", hosts=2, train={"steps": 9})
    index = build_index(job)
    with loader_of(job, index, 0) as loader:
        part = next(loader).cursor
    with pytest.raises(DataError, match="4 of 8 lanes; lane 4 is not among them"):
        loader_of(job, index, 1, start=part)
    with pytest.raises(DataError, match="4 lanes at steps 1; wanted 8 lanes"):
        Cursor.merged([part])


def test_exact_packing_before_measuring_is_an_estimate_that_no_loader_takes(corpus: str) -> None:
    job = pack_job(corpus, "exact")
    index = build_index(job)
    plan = make_data_plan(job, index)
    assert plan.is_estimate
    assert plan.num_steps > 0
    with pytest.raises(DataError, match="found no token counts"):
        Loader(job, Host(0, 1), index, NumberPipeline(BATCH))


def test_token_counts_are_kept_in_the_cache(corpus: str, tmp_path: Path) -> None:
    job = pack_job(corpus, "exact", cache=str(tmp_path))
    index = build_index(job)
    first = measured(job, index, NumberPipeline(BATCH), Host(0, 1))

    class Untouched(NumberPipeline):
        def encode(self, column: Any) -> Documents:
            raise AssertionError("measured again")

    assert measured(job, index, Untouched(BATCH), Host(0, 1)).fingerprints == first.fingerprints
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-3])
    assert measured(job, index, NumberPipeline(BATCH), Host(0, 1)).fingerprints == first.fingerprints


def test_bad_records_are_refused_while_measuring_or_take_no_place(tmp_path: Path) -> None:
    rows = [{"text": None if n == 5 else f"{n + 1} {0 if n == 9 else 20}"} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = pack_job(f"{tmp_path}/*.jsonl", "exact", remainder="mask")
    with pytest.raises(DataError, match=r"a\.jsonl, row 6: found null"):
        measured(job, build_index(job), NumberPipeline(BATCH), Host(0, 1))
    job = pack_job(f"{tmp_path}/*.jsonl", "exact", remainder="mask", on_bad_record="mask")
    index = measured(job, build_index(job), NumberPipeline(BATCH), Host(0, 1))
    file = tmp_path / "a.jsonl"
    places = f"{file}, row 6: null; {file}, row 10: no tokens"
    note = f"2 documents without tokens take no place (1 no tokens, 1 null): {places}"
    assert index.sources[0].notes == (note,)
    # Told by two hosts, the reasons are those of one.
    twice = pack_job(f"{tmp_path}/*.jsonl", "exact", hosts=2, remainder="mask", on_bad_record="mask")
    assert whole_index(twice, build_index(twice), NumberPipeline(BATCH)).sources[0].notes == (note,)
    batches, _ = global_rows(job, build_index(job))
    assert set(documents_in(batches)) == {n + 1 for n in range(40) if n not in (5, 9)}
