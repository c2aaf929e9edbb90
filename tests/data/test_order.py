"""The permutation: a bijection for every size, the same for ever, even on few elements, fast on many."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tpuworker.data.order import NUM_ROUNDS, keys_by_group, permute, round_keys

VECTORS = json.loads((Path(__file__).parent / "vectors/order-1.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["permutations"], ids=lambda v: f"{v['name']}-of-{v['num_elements']}")
def test_the_frozen_vectors_still_come_out(vector: dict) -> None:
    positions = np.array(vector["positions"], dtype=np.int64)
    assert permute(positions, vector["num_elements"], round_keys(vector["name"])).tolist() == vector["values"]


@given(num_elements=st.integers(1, 5000), name=st.text("abc/=0123", max_size=12))
@example(num_elements=65_537, name="unbalanced")
@example(num_elements=262_145, name="unbalanced")
@example(num_elements=65_536, name="whole")
@settings(deadline=None, max_examples=60)
def test_every_element_comes_out_once(num_elements: int, name: str) -> None:
    values = permute(np.arange(num_elements), num_elements, round_keys(name))
    assert np.array_equal(np.sort(values), np.arange(num_elements))


@given(num_elements=st.integers(1, 10**15), positions=st.lists(st.floats(0, 1, exclude_max=True), max_size=30))
@settings(deadline=None)
def test_a_position_gives_the_same_alone_and_among_others(num_elements: int, positions: list[float]) -> None:
    places = np.array([int(p * num_elements) for p in positions], dtype=np.int64)
    keys = round_keys("seed=1")
    together = permute(places, num_elements, keys)
    alone = [int(permute(places[i : i + 1], num_elements, keys)[0]) for i in range(len(places))]
    assert together.tolist() == alone
    assert all(0 <= value < num_elements for value in alone)


def test_places_of_several_permutations_can_be_asked_for_at_once() -> None:
    sizes = np.repeat([7, 1000, 3], [7, 1000, 3])
    places = np.concatenate([np.arange(7), np.arange(1000), np.arange(3)])
    labels = np.repeat([0, 1, 2], [7, 1000, 3])[None]
    keys = keys_by_group(labels, lambda label: round_keys(f"part={label}"))
    together = permute(places, sizes, keys)
    apart = [permute(np.arange(n), n, round_keys(f"part={label}")) for label, n in enumerate([7, 1000, 3])]
    assert together.tolist() == np.concatenate(apart).tolist()


def test_no_places_are_no_keys() -> None:
    assert keys_by_group(np.empty((2, 0), dtype=np.int64), round_keys).shape == (NUM_ROUNDS, 0)


@pytest.mark.parametrize("num_elements", [2, 3, 5, 6, 9, 17])
def test_on_few_elements_every_value_comes_first_about_equally_often(num_elements: int) -> None:
    draws = 4000
    first = np.array([permute(np.array([0]), num_elements, round_keys(f"draw={d}"))[0] for d in range(draws)])
    expected = draws / num_elements
    chi_square = float(((np.bincount(first, minlength=num_elements) - expected) ** 2 / expected).sum())
    # Five standard deviations above the mean of a chi-square with n - 1 degrees of freedom.
    assert chi_square < (num_elements - 1) + 5 * (2 * (num_elements - 1)) ** 0.5


def test_neighbours_are_torn_apart() -> None:
    values = permute(np.arange(100_000), 100_000, round_keys("seed=0"))
    assert np.mean(np.abs(np.diff(values)) == 1) < 1e-4
    assert abs(np.mean(np.abs(values - np.arange(100_000))) / 100_000 - 1 / 3) < 0.01


@pytest.mark.parametrize("position", [-1, 10])
def test_a_position_outside_is_refused(position: int) -> None:
    with pytest.raises(ValueError, match="permutation of 10"):
        permute(np.array([position]), 10, round_keys("x"))
