"""A wait goes on while something moves and ends when nothing does."""

from __future__ import annotations

from tests.cluster.patience import Patience


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_runs_out_when_the_same_is_seen_for_too_long() -> None:
    clock = Clock()
    patience = Patience(10, 100, clock)
    patience.note("pending")
    clock.now += 9
    patience.note("pending")
    assert patience.remaining_seconds == 1
    clock.now += 1
    assert patience.remaining_seconds == 0
    assert patience.words == "nothing changed for 10 s"


def test_progress_renews_it() -> None:
    clock = Clock()
    patience = Patience(10, 100, clock)
    for step in range(9):
        clock.now += 9
        patience.note(step)
    assert patience.remaining_seconds == 10


def test_what_changes_for_ever_ends_at_the_limit() -> None:
    clock = Clock()
    patience = Patience(10, 25, clock)
    for step in range(5):
        clock.now += 5
        patience.note(step)
    assert patience.remaining_seconds == 0
    assert "kept changing" in patience.words
