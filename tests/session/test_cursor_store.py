"""Cursors in checkpoint.dir: the newest good one is found again, old ones go, damaged ones are left out and named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuworker.data.cursor import Cursor
from tpuworker.errors import DataError
from tpuworker.session.acceptance import accept
from tpuworker.session.checkpoint import CursorStore
from tpuworker.session.cursor_place import proved, warnings


def cursor(step: int) -> Cursor:
    return Cursor(
        step=step,
        steps_per_epoch=10,
        num_lanes=4,
        window_rows=(8,),
        global_batch_size=16,
        seed=0,
        shuffled=True,
        remainder="drop",
        source_counts=(),
        fingerprints={"tokenizer": "a"},
        lanes={},
    )


def test_nothing_was_saved_yet(tmp_path: Path) -> None:
    assert CursorStore(str(tmp_path / "new")).load() == (None, ())


def test_the_newest_is_found_and_only_as_many_are_kept(tmp_path: Path) -> None:
    store = CursorStore(str(tmp_path / "ck"), keep=2)
    for step in (5, 9, 10, 100):
        store.save(cursor(step))
    assert store.load() == (cursor(100), ())
    assert sorted(path.name for path in (tmp_path / "ck").iterdir()) == [
        "cursor-0000000010.json",
        "cursor-0000000100.json",
    ]


def test_a_damaged_one_is_named_and_the_one_before_is_taken(tmp_path: Path) -> None:
    store = CursorStore(str(tmp_path))
    store.save(cursor(5))
    store.save(cursor(6))
    (tmp_path / "cursor-0000000006.json").write_text('{"step": 6')
    found, damaged = store.load()
    assert found == cursor(5)
    assert "cursor-0000000006.json is damaged" in damaged[0]


def test_none_but_damaged_ones_are_refused_rather_than_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "cursor-0000000006.json").write_text("")
    with pytest.raises(DataError, match=r"cursor-0000000006\.json is damaged"):
        CursorStore(str(tmp_path)).load()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_text("x")
    (tmp_path / "cursor-backup.json").write_text("x")
    store = CursorStore(str(tmp_path), keep=1)
    store.save(cursor(1))
    store.save(cursor(2))
    assert store.load()[0] == cursor(2)
    assert (tmp_path / "weights.bin").exists()


def test_a_place_that_cannot_be_written_is_a_fault_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"spec\.checkpoint\.dir"):
        CursorStore(str(tmp_path / "file" / "ck")).save(cursor(1))


def test_a_bucket_keeps_cursors_as_a_directory_does() -> None:
    store = CursorStore("memory://bucket/run", keep=1)
    store.save(cursor(3))
    assert store.save(cursor(4)) == "memory://bucket/run/cursor-0000000004.json"
    assert store.load() == (cursor(4), ())


def proved_by(directories: list[Path]) -> list[tuple[int, ...]]:
    """Prove a store with hosts as threads, each with its own directory."""
    barrier, told = threading.Barrier(len(directories)), [b""] * len(directories)

    def host(rank: int) -> tuple[int, ...]:
        def exchange(_name: str, mine: bytes) -> list[bytes]:
            told[rank] = mine
            barrier.wait(10)
            everything = list(told)
            barrier.wait(10)
            return everything

        def together(_name: str, action: Callable[[], Any]) -> Any:
            done = action()
            barrier.wait(10)
            return done

        return proved(CursorStore(str(directories[rank])), rank, exchange, together)

    with ThreadPoolExecutor(len(directories)) as hosts:
        return list(hosts.map(host, range(len(directories))))


def test_hosts_that_do_not_see_what_host_0_writes_are_found_before_a_step(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    assert proved_by([mine, mine, other, mine]) == [(2,)] * 4
    assert proved_by([mine] * 3) == [()] * 3
    assert list(mine.iterdir()) == []


def test_a_place_that_cannot_be_written_is_found_before_a_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"spec\.checkpoint\.dir.*wanted a directory that can be written"):
        proved(CursorStore(str(tmp_path / "file" / "ck")), 0, lambda _, mine: [mine], lambda _, action: action())


def test_a_bucket_is_the_same_for_all_hosts() -> None:
    store = CursorStore("memory://bucket/proved")
    assert proved(store, 0, lambda _, mine: [mine], lambda _, action: action()) == ()
    assert store.load() == (None, ())


def test_a_restart_that_may_begin_anew_is_warned_of(tmp_path: Path) -> None:
    store = CursorStore(str(tmp_path))
    assert warnings(store, (), 0, None) == ()
    assert warnings(store, (), 2, cursor(3)) == ()
    [blind, lost] = warnings(store, (2, 3), 1, None)
    assert "hosts of rank 2, 3 do not see what host 0 writes" in blind
    assert "attempt 1 finds no cursor" in lost


def test_an_accepted_change_holds_for_its_submission_and_lets_no_further_one_in(tmp_path: Path) -> None:
    def changed(tokenizer: str) -> Cursor:
        return replace(cursor(0), fingerprints={"tokenizer": tokenizer})

    for directory in (str(tmp_path), "memory://bucket/accepted"):
        store = CursorStore(directory)
        accept(store, "first", cursor(4), changed("b"))
        accept(store, "first", cursor(4), changed("b"))  # a restart before a cursor was saved
        accept(store, "first", changed("b").after(9), changed("b"))  # and one that resumes in the changed data
        with pytest.raises(DataError) as refused:
            accept(store, "first", changed("b").after(9), changed("c"))
        assert "cursor at step 9: tokenizer: found c; wanted b" in str(refused.value)
        assert "not the change that was accepted" in str(refused.value)
        accept(store, "second", changed("b").after(9), changed("c"))
        assert store.load() == (None, ())  # what is remembered is no cursor


def test_data_that_did_not_change_is_nothing_to_accept(tmp_path: Path) -> None:
    store = CursorStore(str(tmp_path))
    accept(store, "first", cursor(4), cursor(0))
    assert list(tmp_path.iterdir()) == []
    accept(store, "first", cursor(4), replace(cursor(0), seed=1))
    assert [path.name for path in tmp_path.iterdir()] == ["accepted.json"]
    (tmp_path / "accepted.json").write_text("{")  # cut off by the end of its machine
    accept(store, "first", cursor(4), replace(cursor(0), seed=1))
    assert store.accepted_by("first") is not None
