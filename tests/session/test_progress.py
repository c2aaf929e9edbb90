"""Rates and remaining time follow the clock; an interval in which the device starved says so."""

from __future__ import annotations

import pytest

from tpuworker.session.progress import Meter, duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_remaining_time_are_those_of_the_last_interval() -> None:
    clock = Clock()
    meter = Meter(100, rows_per_step=64, tokens_per_step=8192, clock=clock)
    meter.begin(1, 0.0)  # the first step, which compiles, does not count
    clock.now = 3.0
    progress = meter.read(7, 0.0)
    assert (progress.steps_per_second, progress.rows_per_second, progress.tokens_per_second) == (2.0, 128.0, 16384.0)
    assert progress.eta_seconds == 46.5
    clock.now = 4.0
    assert meter.read(17, 0.0).steps_per_second == 10.0


def test_starved_share_is_that_of_the_interval_alone() -> None:
    clock = Clock()
    meter = Meter(100, 1, 1, clock=clock)
    meter.begin(0, 50.0)
    clock.now = 10.0
    assert meter.read(1, 54.0).starved_fraction == pytest.approx(0.4)
    clock.now = 20.0
    assert meter.read(2, 54.0).starved_fraction == 0.0


def test_no_time_and_no_steps_are_no_division_by_zero() -> None:
    meter = Meter(10, 1, 1, clock=Clock())
    assert meter.read(0, 0.0).eta_seconds == 0.0


def test_people_read_step_loss_rate_and_remaining_time() -> None:
    clock = Clock()
    meter = Meter(50, 64, 8192, clock=clock)
    meter.begin(0, 0.0)
    clock.now = 5.0
    assert meter.read(10, 0.0).sentence(2.5) == "step 10/50  loss 2.5000  128 rows/s  16,384 tokens/s  ETA 20s"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (90_000, "1d01h")],
)
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words
