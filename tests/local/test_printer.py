"""Lines of workers as people see them: prefixed, the common ones once, tables for verdicts, noise left out."""

from __future__ import annotations

import io
import json

from tpulaunch.local.printer import Printer


def shown(*lines: tuple[int, str, object], colored: bool = False, raw: bool = False) -> str:
    stream = io.StringIO()
    printer = Printer(stream, 4, is_colored=colored, is_raw=raw)
    for rank, label, line in lines:
        printer.line(rank, label, line if isinstance(line, str) else json.dumps(line))
    return stream.getvalue()


def progress(step: int) -> dict[str, object]:
    return {
        "severity": "INFO",
        "message": f"step {step}/50  loss 2.5  ETA 3m10s",
        "event": "progress",
        "step": step,
        "num_steps": 50,
        "loss": 2.5,
        "rows_per_second": 1280.4,
    }


VERDICT = {
    "severity": "INFO",
    "message": "preflight passed",
    "event": "preflight",
    "verdict": "passed",
    "preflight": {"num_hosts": 2, "num_slices": 1, "shapes": {"input_ids": [8, 4]}, "data_hash": "abc", "faults": []},
}


def test_every_line_carries_its_host() -> None:
    assert shown((0, "0/0", "hello"), (11, "0/11", "there")) == "0/0  | hello\n0/11 | there\n"


def test_what_all_hosts_say_alike_is_shown_once() -> None:
    text = shown((0, "0/0", progress(5)), (1, "0/1", progress(5)), (0, "0/0", VERDICT), (1, "0/1", VERDICT))
    assert text.count("step  5/50") == 1
    assert text.count("preflight passed") == 1
    assert "0/1" not in text


def test_progress_is_told_in_columns() -> None:
    line = shown((0, "0/0", progress(5)))
    assert line == "0/0  | step  5/50  loss   2.5000       1,280 rows/s  ETA 3m10s\n"


def test_the_verdict_is_a_table() -> None:
    text = shown((0, "0/0", VERDICT))
    assert "batch           input_ids [8, 4]" in text
    assert "global batches  abc" in text


def test_a_refused_verdict_shows_each_fault() -> None:
    fault = {"path": "tokenizer", "found": "'b' on host 0/1", "wanted": "'a'", "hint": "pin it"}
    refused = VERDICT | {"verdict": "refused", "preflight": {"faults": [fault, fault | {"path": "spec"}]}}
    text = shown((0, "0/0", refused))
    assert "preflight refused" in text
    assert "tokenizer: found 'b' on host 0/1; wanted 'a'; pin it" in text
    assert "spec: found" in text


def test_failures_name_their_class_and_every_host_shows_its_own() -> None:
    failure = {"severity": "ERROR", "message": "no such file", "event": "end", "reason": "DataError"}
    told = failure | {"message": "host 0/0: DataError: no such file"}
    assert shown((0, "0/0", failure), (1, "0/1", told)) == (
        "0/0  | DataError: no such file\n0/1  | host 0/0: DataError: no such file\n"
    )


def test_text_over_several_lines_keeps_its_prefix() -> None:
    assert shown((0, "0/0", {"severity": "INFO", "message": "a\nb"})) == "0/0  | a\n0/0  | b\n"


def test_lines_that_only_look_like_json_are_shown_as_they_are() -> None:
    assert shown((0, "0/0", "{not json"), (0, "0/0", '{"other": 1}')) == '0/0  | {not json\n0/0  | {"other": 1}\n'


def test_noise_of_native_libraries_is_left_out() -> None:
    assert shown((0, "0/0", "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number")) == ""


def test_colour_marks_hosts_and_errors_only_where_it_is_wanted() -> None:
    failure = {"severity": "ERROR", "message": "bad"}
    assert "\x1b[31mbad\x1b[0m" in shown((0, "0/0", failure), colored=True)
    assert "\x1b" not in shown((0, "0/0", failure))


def test_raw_leaves_json_to_machines() -> None:
    assert json.loads(shown((1, "0/1", progress(5)), raw=True).partition("| ")[2])["step"] == 5
