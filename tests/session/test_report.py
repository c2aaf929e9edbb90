"""Log lines are one strict JSON object each; last words fit what the kubelet keeps, whatever they are."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuworker.report import Reporter, last_words, write_last_words


def said(style: str, *arguments: object, **fields: object) -> str:
    stream = io.StringIO()
    Reporter(style, "0/1", stream).say(*arguments, **fields)  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_line_has_severity_time_message_and_host() -> None:
    line = said("json", "three\nlines\nhere", event="progress", step=3)
    assert line.count("\n") == 1
    record = json.loads(line)
    assert (record["severity"], record["host"], record["event"], record["step"]) == ("INFO", "0/1", "progress", 3)
    assert record["message"] == "three\nlines\nhere"
    assert record["time"].endswith("Z")


def test_numbers_that_json_does_not_know_become_text() -> None:
    line = said("json", "x", loss=float("nan"), rates=[float("inf")])
    record = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (record["loss"], record["rates"]) == ("nan", ["inf"])


def test_people_read_host_and_severity_before_the_message() -> None:
    assert said("text", "careful", "WARNING") == "0/1 | WARNING: careful\n"


@pytest.mark.parametrize("style", ["json", "text"])
def test_the_health_file_holds_the_last_line_of_the_worker_itself(style: str, tmp_path: Path) -> None:
    reporter = Reporter(style, "0/1", io.StringIO())  # type: ignore[arg-type]
    reporter.keep_health(tmp_path / "state" / "health.json")
    reporter.say("step 7/9", event="progress", step=7)
    reporter.say("a library goes on talking", logger="some.library")
    record = json.loads((tmp_path / "state" / "health.json").read_text())
    assert (record["event"], record["step"], record["host"]) == ("progress", 7, "0/1")
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["health.json"]


def test_a_worker_goes_on_where_its_health_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stream = io.StringIO()
    reporter = Reporter("json", "0/1", stream)
    reporter.keep_health(tmp_path / "file" / "health.json")
    reporter.say("step 7/9")
    assert json.loads(stream.getvalue())["message"] == "step 7/9"


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    yield root
    root.handlers[:], root.level = kept, level


def test_lines_of_libraries_get_a_severity_and_their_traceback(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    Reporter("json", "0/0", stream).take_logging()
    try:
        int("inside")
    except ValueError:
        logging.getLogger("some.library").exception("went %s", "wrong")
    record = json.loads(stream.getvalue())
    assert (record["severity"], record["logger"]) == ("ERROR", "some.library")
    assert record["message"].startswith("went wrong\nTraceback")
    assert "ValueError: invalid literal" in record["message"]


@given(message=st.text(max_size=9000), faults=st.lists(st.text(max_size=2000), max_size=5))
def test_last_words_always_fit_and_keep_the_code(message: str, faults: list[str]) -> None:
    preflight = {"verdict": "refused", "faults": faults}
    text = last_words({"message": message, "exit_code": 3, "preflight": preflight})
    assert len(text.encode()) <= 4096
    record = json.loads(text)
    assert record["exit_code"] == 3
    assert record["preflight"]["verdict"] == "refused"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    record = json.loads(last_words({"message": "begin" + "x" * 9000 + "end"}))
    assert record["message"].startswith("begin")
    assert record["message"].endswith("end")


def test_last_words_that_cannot_be_written_are_no_failure(tmp_path: Path) -> None:
    write_last_words(tmp_path / "no" / "such" / "file", "words")
    write_last_words(tmp_path / "file", "words")
    assert (tmp_path / "file").read_text() == "words"
