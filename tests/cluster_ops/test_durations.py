"""Durations are Go's, ages are kubectl's."""

from __future__ import annotations

import pytest

from tpulaunch.cluster.durations import format_age, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("0", 0),
        ("-1m", -60),
        ("1m.5s", 60.5),
    ],
)
def test_go_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "1d", "1h30", "ten", "1h-3m"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="10m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (312, "5m12s"),
        (3600, "60m"),
        (11_100, "3h5m"),
        (30_000, "8h"),
        (187_200, "2d4h"),
        (864_000, "10d"),
    ],
)
def test_ages_are_short(seconds: float, age: str) -> None:
    assert format_age(seconds) == age
