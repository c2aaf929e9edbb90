"""Hosts that differ are named, with what differs and the value of each."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from tpuworker.preflight.agreement import disagreements, from_bytes, own_facts, to_bytes, users_files

LABELS = ["0/0", "0/1", "1/0", "1/1"]


def test_hosts_that_agree_give_no_fault() -> None:
    assert disagreements([{"spec": "a", "steps": "10"}] * 4, LABELS) == []


def test_the_host_in_the_minority_is_named_with_its_value_and_the_others() -> None:
    facts = [{"tokenizer": "aaaa"}, {"tokenizer": "aaaa"}, {"tokenizer": "bbbb"}, {"tokenizer": "aaaa"}]
    (fault,) = disagreements(facts, LABELS)
    assert fault.path == "tokenizer"
    assert fault.found == "'bbbb' on host 1/0"
    assert fault.host == "1/0"
    assert fault.wanted == "'aaaa', as on 3 other hosts"
    assert "revision" in fault.hint


def test_of_two_equally_common_values_the_first_hosts_counts() -> None:
    (fault,) = disagreements([{"spec": "a"}, {"spec": "b"}], ["0/0", "0/1"])
    assert fault.found == "'b' on host 0/1"


def test_a_fact_that_a_host_does_not_have_is_a_difference() -> None:
    (fault,) = disagreements([{"x": "1"}, {}], ["0/0", "0/1"])
    assert fault.found == "'nothing' on host 0/1"


def test_every_difference_is_told_at_once() -> None:
    faults = disagreements([{"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "1", "c": "2"}], ["0/0", "0/1"])
    assert [fault.path for fault in faults] == ["a", "c"]


def test_a_thousand_differing_hosts_fit_on_a_line() -> None:
    facts = [{"spec": "same"}] * 2000 + [{"spec": str(host)} for host in range(1000)]
    (fault,) = disagreements(facts, [f"0/{host}" for host in range(3000)])
    assert fault.found.endswith("and 996 more hosts")
    assert len(fault.describe()) < 400


def test_facts_survive_the_way_to_other_hosts() -> None:
    facts = {"spec": "ä", "steps": "10"}
    assert from_bytes(to_bytes(facts)) == facts


def test_users_code_is_what_is_neither_python_nor_installed(tmp_path: Path) -> None:
    own = tmp_path / "trainer.py"
    own.write_text("x = 1\n")
    module = types.ModuleType("trainer")
    module.__file__ = str(own)
    assert users_files([module, sys, types, pytest]) == {own}


def test_a_changed_line_of_users_code_changes_the_facts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    before = own_facts("spec", [], [script])
    script.write_text("x = 2\n")
    after = own_facts("spec", [], [script])
    assert [name for name in before if before[name] != after[name]] == ["your code"]


def test_another_spec_changes_the_facts() -> None:
    assert own_facts("a", [])["spec"] != own_facts("b", [])["spec"]
