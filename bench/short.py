"""The three-minute variant for CI: few contenders, small text, limits that only a real regression breaks."""

from __future__ import annotations

from dataclasses import dataclass

from bench.results import Line, Results
from bench.summary import Summary, median_of

CONTENDERS = (
    "raw reference, Rust threads",
    "raw reference, Python threads",
    "raw fastokens",
    "datasets, numpy",
    "datasets reader, 2 tokenising threads",
    "ours, reference engine",
    "ours, fast engine",
)


@dataclass(frozen=True)
class Limit:
    """A ratio that must not fall below a number far under what is measured on a quiet machine.

    Attributes:
        contender: Of which line.
        layout: In which layout.
        over: ``raw`` or the name of another contender.
        least: The least ratio of medians that passes.
    """

    contender: str
    layout: str
    over: str
    least: float


LIMITS = (
    Limit("ours, reference engine", "pad", "raw", 0.6),
    Limit("ours, reference engine", "pad", "datasets, numpy", 1.0),
    Limit("ours, fast engine", "pad", "raw", 6.0),
    Limit("ours, fast engine", "pack", "raw", 5.0),
)


def broken(results: Results) -> list[str]:
    """Return a sentence for each limit that does not hold, and for each contender of ours that did not run."""
    sentences = []
    for limit in LIMITS:
        lines = [line for line in results.lines if line.layout == limit.layout]
        line = _named(lines, limit.contender)
        if line is None or not line.runs:
            why = "; ".join(line.failures.values()) if line else "not measured"
            sentences.append(f"{limit.contender}, {limit.layout}: no figure: {why}")
            continue
        found = _ratio(lines, line, limit.over)
        if found is None:
            sentences.append(f"{limit.contender}, {limit.layout}: nothing to compare with: {limit.over} did not run")
        elif found < limit.least:
            sentences.append(f"{limit.contender}, {limit.layout}: {found:.2f} x {limit.over}, wanted {limit.least}")
    return sentences


def _ratio(lines: list[Line], line: Line, over: str) -> float | None:
    if over == "raw":
        spread = Summary(lines).over_raw(line)
        return spread.median if spread else None
    other = _named(lines, over)
    theirs = median_of(other, lambda run: run.rate) if other else None
    mine = median_of(line, lambda run: run.rate)
    return mine / theirs if theirs and mine is not None else None


def _named(lines: list[Line], name: str) -> Line | None:
    return next((line for line in lines if line.contender == name), None)
