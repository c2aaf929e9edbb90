"""A corpus of twenty gigabytes is planned in seconds; memory stays flat, epoch after epoch, in a process of its own."""

from __future__ import annotations

import pytest

from bench.scale.memory import measured
from bench.summary import slope


def test_twenty_gigabytes_are_planned_in_seconds() -> None:
    found = measured(20, epochs=0)
    assert found.num_files == 200
    assert found.decoded_bytes > 20e9
    assert found.index_seconds + found.plan_seconds < 10  # 0.3 s on a quiet machine


def test_memory_does_not_grow_from_epoch_to_epoch() -> None:
    """One epoch fills pools and buffers; nine more, since what is under way at a moment is some megabytes."""
    found = measured(0.03, epochs=10)
    assert found.steps == 10 * (found.num_rows // 256)
    assert len(found.resident_bytes) == 10
    assert found.growth_bytes_per_epoch < 1e6, found


@pytest.mark.parametrize(("values", "grown"), [((), 0.0), ((7.0,), 0.0), ((1.0, 3.0, 5.0), 2.0), ((5.0, 5.0), 0.0)])
def test_growth_is_the_slope_of_a_straight_line(values: tuple[float, ...], grown: float) -> None:
    assert slope(values) == grown
