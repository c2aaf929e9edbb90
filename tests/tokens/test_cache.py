"""The token cache: what is found is what was kept, whoever wrote it, whatever happened to it in between."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layout.test_padding import make_documents, padded
from tests.tokens.builders import make_reference, make_tokenizer
from tests.tokens.families import corpus
from tpuworker.tasks.text import PretrainTask
from tpuworker.tokens.cache import TokenCache
from tpuworker.tokens.documents import BadRecord, Documents, gather_documents
from tpuworker.tokens.entry import DamagedEntryError, entry_bytes, read_entry

FINGERPRINT = {"tokenizer": "a", "task": "b"}


def make_cache(directory: Path | str, limit_bytes: int = 10**9, **changed: str) -> TokenCache:
    return TokenCache(str(directory), {**FINGERPRINT, **changed}, limit_bytes)


def never() -> Documents:
    raise AssertionError("it was there")


def assert_same(found: Documents, wanted: Documents) -> None:
    assert found.ids.tolist() == wanted.ids[wanted.offsets[0] : wanted.offsets[-1]].tolist()
    assert found.offsets.tolist() == (wanted.offsets - wanted.offsets[0]).tolist()
    for name in ("prefix", "suffix", "close_cut", "bad", "unlearnable"):
        assert getattr(found, name) == getattr(wanted, name)
    if wanted.trainable is None:
        assert found.trainable is None
    else:
        assert found.trainable is not None
        assert found.trainable.tolist() == wanted.trainable[wanted.offsets[0] : wanted.offsets[-1]].tolist()


DOCUMENTS = make_documents(
    [1, 2, 3], [], [65_535, 4],
    trainable=np.array([True, False, True, False, True]), prefix=(7,), suffix=(8, 9), close_cut=True,
    bad=(BadRecord(1, "null", "no text"),), unlearnable=(2,),
)  # fmt: skip


@given(
    contents=st.lists(st.lists(st.integers(0, 200_000), max_size=5), max_size=5),
    flags=st.one_of(st.none(), st.randoms(use_true_random=False)),
    skip=st.integers(0, 2),
)
def test_an_entry_gives_back_what_was_put_in(contents: list[list[int]], flags: object, skip: int) -> None:
    size = sum(map(len, contents))
    trainable = None if flags is None else np.array([flags.random() < 0.5 for _ in range(size)], np.bool_)  # type: ignore[attr-defined]
    documents = make_documents(*contents, trainable=trainable, suffix=(1,))
    documents = replace(documents, offsets=documents.offsets[min(skip, len(contents)) :])
    assert_same(read_entry(np.frombuffer(entry_bytes(documents), np.uint8)), documents)


def test_small_ids_take_two_bytes() -> None:
    small, large = (len(entry_bytes(make_documents([top] * 10_000))) for top in (65_535, 65_536))
    assert large - small == 20_000


@pytest.mark.parametrize("place", [0, 9, 13, 40, -1])
def test_no_changed_byte_goes_unseen(place: int) -> None:
    content = np.frombuffer(entry_bytes(DOCUMENTS), np.uint8).copy()
    content[place] ^= 1
    with pytest.raises(DamagedEntryError):
        read_entry(content)


@pytest.mark.parametrize("size", [0, 5, 16, 100])
def test_half_an_entry_is_none(size: int) -> None:
    with pytest.raises(DamagedEntryError):
        read_entry(np.frombuffer(entry_bytes(DOCUMENTS)[:size], np.uint8))


@pytest.mark.parametrize("where", ["local", "memory://cache-{}"])
def test_a_unit_is_made_once_and_found_by_everyone(where: str, tmp_path: Path) -> None:
    directory = str(tmp_path) if where == "local" else where.format(tmp_path.name)
    cache = make_cache(directory)
    assert_same(cache.documents("unit", lambda: DOCUMENTS), DOCUMENTS)
    assert_same(make_cache(directory).documents("unit", never), DOCUMENTS)
    counters = cache.counters
    assert (counters.misses, counters.written, counters.hits) == (1, 1, 0)


def test_another_tokenizer_template_or_unit_finds_nothing(tmp_path: Path) -> None:
    make_cache(tmp_path).keep("unit", DOCUMENTS)
    assert make_cache(tmp_path).find("unit") is not None
    assert make_cache(tmp_path).find("other unit") is None
    assert make_cache(tmp_path, tokenizer="x").find("unit") is None


@pytest.mark.parametrize(
    "damage", [lambda content: content[:50], lambda content: b"", lambda content: content[:-1] + b"x"]
)
def test_a_damaged_entry_is_made_anew(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_cache(tmp_path).keep("unit", DOCUMENTS)
    (file,) = tmp_path.rglob("*.tokens")
    file.write_bytes(damage(file.read_bytes()))
    cache = make_cache(tmp_path)
    assert_same(cache.documents("unit", lambda: DOCUMENTS), DOCUMENTS)
    assert cache.counters.damaged == 1
    assert "made anew" in caplog.text
    assert_same(make_cache(tmp_path).documents("unit", never), DOCUMENTS)


def test_a_full_cache_takes_no_more_and_the_job_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = len(entry_bytes(DOCUMENTS))
    cache = make_cache(tmp_path, limit_bytes=2 * size)
    for unit in "abcd":
        assert_same(cache.documents(unit, lambda: DOCUMENTS), DOCUMENTS)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.tokens")) == 2 * size
    assert cache.counters.refused == 2
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_entries_of_others_count_towards_the_limit(tmp_path: Path) -> None:
    make_cache(tmp_path, tokenizer="x").keep("unit", DOCUMENTS)
    assert not make_cache(tmp_path, limit_bytes=len(entry_bytes(DOCUMENTS)) + 10).keep("unit", DOCUMENTS)


def test_threads_that_write_at_once_stay_under_the_limit_together(tmp_path: Path) -> None:
    limit_bytes = 3 * len(entry_bytes(DOCUMENTS)) // 2  # one entry fits, two do not
    for attempt in range(20):
        cache, start = make_cache(tmp_path / str(attempt), limit_bytes), threading.Barrier(4)

        def write(number: int, cache: TokenCache = cache, start: threading.Barrier = start) -> None:
            start.wait(10)
            cache.keep(f"unit {number}", DOCUMENTS)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(list((tmp_path / str(attempt)).rglob("*.tokens"))) == 1


def test_a_directory_that_cannot_be_written_costs_time_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file")
    cache = make_cache(tmp_path / "taken")
    assert_same(cache.documents("unit", lambda: DOCUMENTS), DOCUMENTS)
    assert_same(cache.documents("other", lambda: DOCUMENTS), DOCUMENTS)
    assert len(caplog.records) == 1


def _fill(directory: str, seed: int) -> None:
    cache = make_cache(directory)
    for unit in np.random.default_rng(seed).permutation(20).tolist():
        cache.documents(f"unit {unit}", lambda unit=unit: make_documents([unit] * 1000))  # type: ignore[misc]


def test_hosts_that_write_at_once_leave_whole_entries(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    hosts = [context.Process(target=_fill, args=(str(tmp_path), seed)) for seed in range(2)]
    threads = [threading.Thread(target=_fill, args=(str(tmp_path), seed)) for seed in (2, 3)]
    for worker in (*hosts, *threads):
        worker.start()
    for worker in (*hosts, *threads):
        worker.join()
    assert [host.exitcode for host in hosts] == [0, 0]
    cache = make_cache(tmp_path)
    for unit in range(20):
        assert_same(cache.documents(f"unit {unit}", never), make_documents([unit] * 1000))
    assert not list(tmp_path.rglob(".writing-*"))


def test_rows_from_the_cache_are_the_rows_made_from_text(tmp_path: Path) -> None:
    task = PretrainTask(make_tokenizer(), make_reference())
    units = [pa.array([*(text[:200] for text in corpus()[begin : begin + 5]), None]) for begin in (0, 5, 10)]
    cache = make_cache(tmp_path)
    for number, unit in enumerate(units):
        cache.keep(str(number), task.encode(unit))
    picked = [(2, [5, 0, 3]), (0, [1]), (2, [1, 1])]
    found = gather_documents([(cache.documents(str(unit), never), np.array(places)) for unit, places in picked])
    fresh = task.encode(pa.concat_arrays([units[unit].take(pa.array(places)) for unit, places in picked]))
    assert_same(found, fresh)
    for name, array in padded(found, 32).arrays.items():
        assert array.tolist() == padded(fresh, 32).arrays[name].tolist()


def test_documents_of_no_unit_are_no_documents() -> None:
    assert gather_documents([]).num_documents == 0
