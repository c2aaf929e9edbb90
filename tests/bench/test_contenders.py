"""Contenders, each in a process of its own: the same rows in the same form, and how a run that fails is told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bench.child import slots, useful_tokens
from bench.contenders import CONTENDERS, Contender
from bench.corpus.store import Corpus, open_corpus
from bench.corpus.synthetic import NUMBERED_ROWS
from bench.exactness import coverage, global_batches, same_batches
from bench.process import run
from bench.task import Task

#: What a contender's file imports that the worker's own environment may lack.
_NEEDS = {
    "datasets_plain": "torch",
    "datasets_numpy": "torch",
    "grain": "grain",
    "mosaicml": "streaming",
    "litdata": "litdata",
}
_OF_NUMBERS = [name for name, each in CONTENDERS.items() if each.kind == "text" and "workers" not in each.options]


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return open_corpus(tmp_path_factory.mktemp("store"), "numbered")


def a_task(contender: Contender, corpus: Corpus, scratch: Path) -> Task:
    return Task(
        contender=contender.name,
        measure="rows",
        corpus=corpus.directory,
        tokenizer=corpus.tokenizer(),
        scratch=str(scratch),
        length=64,
        options=contender.options,
    )


def skip_what_is_not_installed(contender: Contender) -> None:
    needs = {library for start, library in _NEEDS.items() if contender.module.startswith(start)}
    needs |= {"torch_xla"} if contender.options.get("backend") == "torch_xla" else set()
    if missing := [library for library in needs if find_spec(library) is None]:
        pytest.skip(f"needs {missing[0]}, which comes with the bench extra")


@pytest.mark.parametrize("name", _OF_NUMBERS)
def test_every_contender_delivers_each_row_of_the_corpus_once(name: str, numbered: Corpus, tmp_path: Path) -> None:
    contender = CONTENDERS[name]
    skip_what_is_not_installed(contender)
    for format_name in set(contender.formats) - {"parquet"}:
        numbered.convert(format_name)

    outcome = run(a_task(contender, numbered, tmp_path), most_seconds=300)

    assert outcome.failure == ""
    rows = [row for step in outcome.get("rows", "steps") for row in step]
    assert len(rows) == len(set(rows))
    # A loader may leave out less than a call of its pipeline: eight batches of 32 rows.
    assert sum(NUMBERED_ROWS) - 8 * 32 < len(rows) <= sum(NUMBERED_ROWS)
    assert rows != sorted(rows)


def test_a_process_that_fails_is_told_by_its_last_line(numbered: Corpus, tmp_path: Path) -> None:
    task = a_task(CONTENDERS["raw reference, Rust threads"], numbered, tmp_path)

    outcome = run(task.with_(tokenizer=str(tmp_path / "absent.json")), most_seconds=60)

    assert "No such file" in outcome.failure
    assert outcome.get("speed", "tokens") is None


def test_a_speed_run_reports_first_batch_window_and_memory(numbered: Corpus, tmp_path: Path) -> None:
    task = a_task(CONTENDERS["raw reference, Rust threads"], numbered, tmp_path)

    outcome = run(task.with_(measure="speed", warm_up_seconds=0.0, window_seconds=60.0), most_seconds=120)

    assert outcome.failure == ""
    assert outcome.get("speed", "tokens") > 0
    assert 0 < outcome.get("imported", "seconds") < outcome.get("first", "seconds")
    assert outcome.peak_bytes >= outcome.base_bytes > 0


def test_useful_tokens_are_those_that_stand_for_text() -> None:
    ids = np.array([[5, 6, 7, 0], [8, 0, 0, 0]], np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)

    assert useful_tokens({"input_ids": ids, "attention_mask": mask}, 4, "pad") == 4
    assert slots({"input_ids": ids, "attention_mask": mask}) == 8
    assert useful_tokens({"input_ids": ids, "segment_ids": mask}, 4, "pack") == 4
    assert useful_tokens({"input_ids": ids}, 4, "pad") == 8


def test_raw_lengths_count_as_far_as_a_row_would_keep_them() -> None:
    lengths = {"lengths": np.array([3, 10], np.int64)}

    assert useful_tokens(lengths, 4, "pad") == 7
    assert useful_tokens(lengths, 4, "pack") == 13


def test_coverage_allows_the_remainder_of_one_batch_and_counts_the_rest() -> None:
    assert coverage(list(range(4_000))) == (0, 0)
    assert coverage(list(range(3_990))) == (10, 0)
    assert coverage([*range(4_000), 7, 7]) == (0, 2)


def test_global_batches_join_hosts_step_by_step() -> None:
    assert global_batches([[[1], [2]], [[3], [4]]]) == [[1, 3], [2, 4]]


def test_runs_are_the_same_by_order_by_sets_or_not() -> None:
    run_of_one = [[1, 2], [3, 4]]

    assert same_batches([run_of_one, [[1, 2], [3, 4]]]) == "same order"
    assert same_batches([run_of_one, [[2, 1], [3, 4]]]) == "same sets"
    assert same_batches([run_of_one, [[1, 3], [2, 4]]]) == "no"
