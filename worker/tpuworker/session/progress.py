"""Rate, remaining time and starvation of a training loop, from the clock and the loader's counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

#: Share of an interval that a host may wait for data before the log says so: a device below is not kept busy.
STARVED_FRACTION = 0.2
#: An interval shorter than this says nothing about a rate.
_LEAST_SECONDS = 1e-6


@dataclass(frozen=True)
class Progress:
    """Where the loop stands.

    Attributes:
        step: Steps done, earlier runs included.
        num_steps: Steps of the job.
        steps_per_second: Over the interval since the last one.
        rows_per_second: Of the whole job.
        tokens_per_second: Token slots of the whole job.
        eta_seconds: Until the last step at this rate.
        starved_fraction: Share of the interval this host waited for data.
    """

    step: int
    num_steps: int
    steps_per_second: float
    rows_per_second: float
    tokens_per_second: float
    eta_seconds: float
    starved_fraction: float

    def sentence(self, loss: float | None) -> str:
        """Return the line for people."""
        told = [f"step {self.step}/{self.num_steps}"]
        if loss is not None:
            told.append(f"loss {loss:.4f}")
        told.append(f"{self.rows_per_second:,.0f} rows/s")
        told.append(f"{self.tokens_per_second:,.0f} tokens/s")
        told.append(f"ETA {duration(self.eta_seconds)}")
        return "  ".join(told)


class Meter:
    """Measures intervals.

    Args:
        num_steps: Steps of the job.
        rows_per_step: Rows of a step over the whole job.
        tokens_per_step: Token slots of a step over the whole job.
        clock: Seconds.
    """

    def __init__(
        self, num_steps: int, rows_per_step: int, tokens_per_step: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._num_steps = num_steps
        self._rows_per_step = rows_per_step
        self._tokens_per_step = tokens_per_step
        self._clock = clock
        self._began = (clock(), 0, 0.0)

    def begin(self, step: int, starved_seconds: float) -> None:
        """Begin an interval: at the start, and after the first step, which compiles."""
        self._began = (self._clock(), step, starved_seconds)

    def read(self, step: int, starved_seconds: float) -> Progress:
        """End the interval, begin the next, and return what it was like."""
        now = self._clock()
        began, first, starved_before = self._began
        seconds = max(now - began, _LEAST_SECONDS)
        rate = (step - first) / seconds
        self.begin(step, starved_seconds)
        return Progress(
            step=step,
            num_steps=self._num_steps,
            steps_per_second=rate,
            rows_per_second=rate * self._rows_per_step,
            tokens_per_second=rate * self._tokens_per_step,
            eta_seconds=(self._num_steps - step) / rate if rate else 0.0,
            starved_fraction=min(1.0, (starved_seconds - starved_before) / seconds),
        )


def duration(seconds: float) -> str:
    """Return a duration as people say it: ``42s``, ``3m10s``, ``2h05m``, ``3d04h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"
