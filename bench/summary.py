"""From runs to the figures of the tables: ratios inside a round, medians over rounds; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.results import Line, Run

RAW_REFERENCE = ("raw reference, Rust threads", "raw reference, Python threads")
RAW_FAST = ("raw fastokens", "raw gigatoken")


@dataclass(frozen=True)
class Spread:
    """Median, least and most of the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return the spread of some values, or None of none."""
        found = list(values)
        return cls(statistics.median(found), min(found), max(found)) if found else None


def ratios(line: Line, others: Iterable[Line], figure: Callable[[Run], float]) -> Spread | None:
    """Return a line's figure over the best of other lines, round by round.

    A round counts only if the line and one of the others were measured in it: the machine changes between rounds.
    """
    best: dict[int, float] = {}
    for other in others:
        for run in other.runs:
            best[run.round] = max(best.get(run.round, 0.0), figure(run))
    return Spread.of(figure(run) / best[run.round] for run in line.runs if best.get(run.round))


class Summary:
    """Ratios of the lines of one corpus and layout."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = {line.contender: line for line in lines}

    def over_raw(self, line: Line) -> Spread | None:
        """Return the rate over the better of the two ways to run the reference."""
        return ratios(line, self._named(RAW_REFERENCE), _rate)

    def over_rust_threads(self, line: Line) -> Spread | None:
        """Return the rate over the reference with its own threads."""
        return ratios(line, self._named(RAW_REFERENCE[:1]), _rate)

    def over_raw_cpu(self, line: Line) -> Spread | None:
        """Return the rate per CPU-second over the reference's, the better of its two ways."""
        return ratios(line, self._named(RAW_REFERENCE), _cpu_rate)

    def over_engine(self, line: Line) -> Spread | None:
        """Return the rate over the better fast engine alone."""
        return ratios(line, self._named(RAW_FAST), _rate)

    def _named(self, names: Iterable[str]) -> list[Line]:
        return [self._lines[name] for name in names if name in self._lines]


def _rate(run: Run) -> float:
    return run.rate


def _cpu_rate(run: Run) -> float:
    return run.cpu_rate


def median_of(line: Line, figure: Callable[[Run], float], *, warm: bool | None = None) -> float | None:
    """Return the median of a figure over all rounds, the first (cold) or the later ones (warm)."""
    runs = [run for run in line.runs if warm is None or (run.round > 0) == warm]
    return statistics.median(figure(run) for run in runs) if runs else None


def fill(run: Run) -> float:
    """Return the share of positions that hold a useful token."""
    return run.tokens / run.slots if run.slots else 0.0


def over_imports_bytes(run: Run) -> float:
    """Return the most memory less that after the imports."""
    return float(max(0, run.peak_bytes - run.base_bytes))


def flatness(seconds: Iterable[float]) -> float | None:
    """Return most over least, or None with nothing to compare."""
    found = list(seconds)
    return max(found) / min(found) if len(found) > 1 and min(found) > 0 else None


def slope(values: Sequence[float]) -> float:
    """Return the growth per place of the straight line nearest to the values; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    places = np.arange(len(values)) - (len(values) - 1) / 2
    return float(places @ np.array(values) / (places @ places))
