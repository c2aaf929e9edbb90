"""Mixtures: shares met exactly block by block, every source passed through in order, a stated end."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.builders import data_job, made_up_index
from tests.data.test_resume_and_worlds import rows_of_job
from tpuworker.data.cursor import Cursor
from tpuworker.data.mixture import Mixture, block_counts
from tpuworker.data.plan import make_data_plan
from tpuworker.data.sequence import Sequence
from tpuworker.errors import InputError


@given(weights=st.lists(st.floats(0.001, 1000), min_size=2, max_size=8))
@settings(deadline=None)
def test_every_source_has_a_place_in_each_block_and_big_ones_their_share(weights: list[float]) -> None:
    counts = block_counts(weights)
    assert (counts >= 1).all()
    assert counts.sum() in {1 << bits for bits in range(10, 15)}
    shares = np.array(weights) / sum(weights)
    for count, share in zip(counts, shares, strict=True):
        if share > 0.1:
            assert abs(count / counts.sum() - share) < 0.01 * share + len(weights) / counts.sum()


def test_equal_weights_are_halved() -> None:
    assert block_counts([3.0, 3.0]).tolist() == [512, 512]


@pytest.mark.parametrize("shuffled", [True, False])
def test_in_every_block_of_a_lane_each_source_has_its_count_and_each_ordinal_comes_once(shuffled: bool) -> None:
    mixture = Mixture(block_counts([1, 2, 5]), seed=4, shuffled=shuffled)
    places = np.arange(3 * mixture.block)
    sources, ordinals = mixture.assign(np.full_like(places, 6), places)
    for block in range(3):
        part = slice(block * mixture.block, (block + 1) * mixture.block)
        assert np.bincount(sources[part]).tolist() == mixture.counts.tolist()
    for source, count in enumerate(mixture.counts):
        assert ordinals[sources == source].tolist() == list(range(3 * count))


def test_shares_hold_over_a_few_rows_and_blocks_differ() -> None:
    mixture = Mixture(block_counts([1, 1, 2]), seed=4, shuffled=True)
    sources, _ = mixture.assign(np.zeros(2048, dtype=np.int64), np.arange(2048))
    prefix = np.cumsum(sources == 2)
    assert np.abs(prefix - np.arange(1, 2049) / 2).max() <= 3
    assert sources[:1024].tolist() != sources[1024:].tolist()


def mixed(
    rows: list[list[int]], weights: list[float], hosts: int = 1, **data: object
) -> list[list[tuple[int, int, int]]]:
    files = [{"files": "unused", "weight": weight} for weight in weights]
    return rows_of_job(made_up_index(*rows, weights=weights), hosts, batch=16, sources=files, **data)


ROWS = [[100] * 20, [50] * 10, [30] * 10]
WEIGHTS = [4.0, 2.0, 1.0]
LANES = {"lanes": 16}


def test_an_epoch_of_first_exhausted_repeats_no_row_and_ends_with_the_first_source() -> None:
    batches = mixed(ROWS, WEIGHTS, shuffle=LANES)
    seen = Counter(row for step in batches for row in step)
    assert set(seen.values()) == {1}
    drawn = np.bincount([source for source, _, _ in seen])
    used = drawn / np.array([2000, 500, 300])
    # Source 1 has the fewest rows for its weight (500 of 2/7): it is the one that ends, within a batch a lane.
    assert used.argmax() == 1
    assert used[1] > 0.9
    assert np.allclose(drawn / drawn.sum(), np.array(WEIGHTS) / 7, atol=0.02)


def test_an_epoch_of_all_exhausted_shows_every_row_that_the_lanes_hold() -> None:
    batches = mixed(ROWS, WEIGHTS, shuffle=LANES, mixture_stop="all_exhausted")
    seen = Counter(row for step in batches for row in step)
    for source, rows in enumerate([2000, 500, 300]):
        distinct = sum(1 for row in seen if row[0] == source)
        assert distinct >= rows // 16 * 16
    assert max(seen.values()) > 1


def test_a_source_that_begins_again_comes_in_another_order() -> None:
    batches = mixed([[10] * 10, [10] * 100], [1, 1], shuffle=LANES, mixture_stop="all_exhausted")
    first = [row for step in batches for row in step if row[0] == 0]
    passes = [first[i * 96 : (i + 1) * 96] for i in range(3)]
    assert passes[0] != passes[1] != passes[2]


@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_a_mixture_is_the_same_on_all_hosts_and_after_any_resume(data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(["shuffled", "sequential"]))
    options = {
        "shuffle": {"lanes": 16, "order": order, "seed": data.draw(st.integers(0, 9))},
        "mixture_stop": data.draw(st.sampled_from(["first_exhausted", "all_exhausted"])),
        "epochs": data.draw(st.integers(1, 2)),
    }
    whole = mixed(ROWS, WEIGHTS, **options)
    assert mixed(ROWS, WEIGHTS, hosts=data.draw(st.sampled_from([2, 4, 8, 16])), **options) == whole
    step = data.draw(st.integers(0, len(whole) - 1))
    job = data_job([{"files": "x", "weight": w} for w in WEIGHTS], batch=16, **options)
    plan = make_data_plan(job, index := made_up_index(*ROWS, weights=WEIGHTS), None)
    refs = Sequence(plan, index).rows(step, 1, range(16))
    assert list(zip(refs.sources.tolist(), refs.units.tolist(), refs.rows.tolist(), strict=True)) == whole[step]


def test_epochs_of_each_source_are_told() -> None:
    job = data_job([{"files": "x", "weight": w} for w in (1.0, 1.0)], batch=16, mixture_stop="all_exhausted")
    plan = make_data_plan(job, made_up_index([100] * 2, [100] * 10, weights=[1, 1]))
    assert plan.source_epochs[1] == pytest.approx(1, abs=0.1)
    assert plan.source_epochs[0] == pytest.approx(5, abs=0.5)
    assert Cursor.start(plan, {}).source_counts == (512, 512)


def test_a_source_too_small_for_the_lanes_is_refused_by_name() -> None:
    job = data_job([{"files": "x"}, {"files": "y"}], batch=64)
    with pytest.raises(InputError, match=r"sources\[1\]: found 9 rows; wanted at least one row for each of the 64"):
        make_data_plan(job, made_up_index([500], [9]))
