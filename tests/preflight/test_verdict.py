"""The verdict says in few bytes, in a line and in a table what was proved; and which batches are the epoch's last."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tpuworker.errors import Fault
from tpuworker.preflight.check import _too_many_compilations, first_of_last
from tpuworker.preflight.verdict import Verdict

PASSED = Verdict(
    verdict="passed",
    job="tiny",
    backend="jax",
    num_slices=2,
    num_hosts=4,
    num_devices=16,
    versions={"jax": "0.9"},
    shapes={"input_ids": [64, 128]},
    rows_per_host=16,
    num_batches=16,
    num_last_batches=2,
    num_compiles=1,
    num_rows=1000,
    steps_per_epoch=15,
    num_steps=30,
    start_step=5,
    data_hash="abc",
)


def test_a_person_reads_the_verdict_in_one_line() -> None:
    assert PASSED.sentence() == (
        "preflight passed: 4 hosts agree, 16 batches in one shape, 1 compilation, 25 steps, data abc"
    )


def test_a_refusal_names_every_fault() -> None:
    refused = Verdict(
        verdict="refused",
        job="tiny",
        backend="jax",
        num_slices=1,
        num_hosts=2,
        num_devices=2,
        faults=(Fault("spec", "'b' on host 0/1", "'a'"), Fault("steps", "9", "10")),
    )
    assert "spec: found 'b' on host 0/1" in refused.sentence()
    assert "steps: found 9" in refused.table()
    assert len(refused.in_short()["faults"]) == 2


def test_more_compilations_than_allowed_are_a_fault_that_counts_them() -> None:
    assert _too_many_compilations(PASSED) == []
    (fault,) = _too_many_compilations(replace(PASSED, num_compiles=3))
    assert fault.describe().startswith(
        "spec.preflight.max_compiles: found 3 compilations over 16 batches of one shape; wanted at most 1"
    )


def test_the_table_has_a_line_for_each_thing_that_was_proved() -> None:
    lines = PASSED.table().splitlines()
    assert any("input_ids [64, 128]" in line for line in lines)
    assert any("30 on every host, 5 of them done" in line for line in lines)
    assert any("1 of 1 allowed" in line for line in lines)


def test_the_file_is_the_whole_verdict(tmp_path: Path) -> None:
    PASSED.write(tmp_path / "new" / "verdict.json")
    assert json.loads((tmp_path / "new" / "verdict.json").read_text())["shapes"] == {"input_ids": [64, 128]}


def test_a_directory_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    PASSED.write(tmp_path / "file" / "verdict.json")


@pytest.mark.parametrize(
    ("start", "num_steps", "steps_per_epoch", "num_batches", "wanted"),
    [
        (0, 100, 100, 16, 98),
        (0, 300, 100, 16, 98),
        (150, 300, 100, 16, 198),
        (0, 50, 100, 16, 48),  # the job ends before its first epoch
        (90, 300, 100, 16, None),  # the first batches reach the epoch's end anyway
        (0, 10, 10, 16, None),
        (0, 100, 100, 2, None),
    ],
)
def test_the_epochs_last_batches_begin_here(
    start: int, num_steps: int, steps_per_epoch: int, num_batches: int, wanted: int | None
) -> None:
    assert first_of_last(start, num_steps, steps_per_epoch, num_batches) == wanted
