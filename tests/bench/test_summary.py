"""Ratios, from literals: inside a round, over the better of several, and nothing where nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report import markdown
from bench.results import Exactness, Line, Results, Run, read_results
from bench.short import broken
from bench.summary import RAW_REFERENCE, Summary, flatness, median_of

RUST, PYTHON = RAW_REFERENCE


def a_run(turn: int, tokens: int, cpu_seconds: float = 4.0, slots: int = 0) -> Run:
    return Run(
        round=turn,
        wall_seconds=2.0,
        cpu_seconds=cpu_seconds,
        tokens=tokens,
        slots=slots or tokens,
        import_seconds=1.0,
        first_seconds=0.5 + turn,
        base_bytes=100,
        peak_bytes=300,
        load=0.1,
    )


def a_line(name: str, *tokens: int, layout: str = "pad", kind: str = "text") -> Line:
    return Line(name, kind, layout, "real text", runs=[a_run(turn, count) for turn, count in enumerate(tokens)])


def test_a_ratio_is_taken_inside_a_round_and_over_the_better_raw() -> None:
    ours = a_line("ours, fast engine", 2_000, 900, 4_000)
    summary = Summary([a_line(RUST, 100, 90, 100), a_line(PYTHON, 80, 100, 400), ours])

    over_raw, over_rust = summary.over_raw(ours), summary.over_rust_threads(ours)

    assert over_raw is not None
    assert over_rust is not None
    assert (over_raw.least, over_raw.median, over_raw.most) == (9.0, 10.0, 20.0)
    assert (over_rust.least, over_rust.median, over_rust.most) == (10.0, 20.0, 40.0)


def test_a_round_without_raw_does_not_count() -> None:
    ours = a_line("ours, fast engine", 500, 700)
    raw = Line(RUST, "raw", "pad", "real text", runs=[a_run(1, 70)])

    spread = Summary([raw, ours]).over_raw(ours)

    assert spread is not None
    assert (spread.least, spread.most) == (10.0, 10.0)


def test_there_is_no_ratio_over_something_that_did_not_run() -> None:
    ours = a_line("ours, fast engine", 500)

    assert Summary([Line(RUST, "raw", "pad", "real text"), ours]).over_raw(ours) is None


def test_the_first_round_is_cold_and_the_others_warm() -> None:
    line = a_line("datasets", 1, 1, 1)

    assert median_of(line, lambda run: run.first_seconds, warm=False) == 0.5
    assert median_of(line, lambda run: run.first_seconds, warm=True) == 2.0


def test_flatness_is_most_over_least() -> None:
    assert flatness([0.5, 0.4, 0.6]) == pytest.approx(1.5)
    assert flatness([0.5]) is None


def results_of(*lines: Line) -> Results:
    machine = {
        "date": "today",
        "processor": "a processor",
        "cpus": 2,
        "memory_gib": 8,
        "python": "3.11",
        "versions": {"tokenizers": "0.1"},
        "load_before": 0.1,
    }
    settings = {"num_cpus": 2, "window_seconds": 2.0, "warm_up_seconds": 1.0, "repeats": 2}
    return Results(machine, settings, {}, list(lines))


def test_results_come_back_from_their_json(tmp_path: Path) -> None:
    line = a_line("datasets", 10, 20)
    line.exactness = Exactness(3, 0, (5, 5, 4, 5), "no", "3 lost, 1 repeated")
    line.resume_seconds["50"] = 1.5
    written = results_of(line)

    written.write(tmp_path / "loaders.json")

    assert read_results(tmp_path / "loaders.json") == written


def test_the_table_shows_ratios_faults_and_what_did_not_run() -> None:
    line = a_line("datasets", 50, 60)
    line.exactness = Exactness(3, 1, (5, 5, 4, 5), "no", "refused: | a pipe")
    line.failures["resume"] = "IndexError: list index out of range"

    text = markdown(results_of(a_line(RUST, 100, 100, kind="raw"), line))

    assert "0.55 (0.50 to 0.60)" in text
    assert "| datasets | 3 | 1 | 5, 5, 4, 5 | no | refused: \\| a pipe |" in text
    assert "resume: IndexError: list index out of range" in text


def lines_of_a_good_run() -> list[Line]:
    return [
        a_line(RUST, 100, 100, kind="raw"),
        a_line(RUST, 100, 100, kind="raw", layout="pack"),
        a_line("datasets, numpy", 50, 50),
        a_line("ours, reference engine", 95, 95),
        a_line("ours, fast engine", 2_000, 2_000),
        a_line("ours, fast engine", 1_800, 1_800, layout="pack"),
    ]


def test_the_short_variant_passes_what_is_measured_on_a_quiet_machine() -> None:
    assert broken(results_of(*lines_of_a_good_run())) == []


def test_the_short_variant_names_contender_figure_and_limit() -> None:
    lines = [line for line in lines_of_a_good_run() if line.contender != "ours, fast engine" or line.layout == "pack"]
    lines.append(a_line("ours, fast engine", 200, 200))

    assert broken(results_of(*lines)) == ["ours, fast engine, pad: 2.00 x raw, wanted 6.0"]


def test_the_short_variant_fails_when_ours_did_not_run() -> None:
    lines = lines_of_a_good_run()
    lines[-1].runs.clear()
    lines[-1].failures["speed"] = "KeyError: 'segment_ids'"

    assert broken(results_of(*lines)) == ["ours, fast engine, pack: no figure: KeyError: 'segment_ids'"]
