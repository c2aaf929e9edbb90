"""Shuffle quality: 1 for a full permutation, little for files in their order, and what the documentation says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import shuffle
from tests.data.builders import BytePipeline, Host, data_job, made_up_index, write_parquet
from tpuworker.data.index import Index
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.data.plan import make_data_plan
from tpuworker.data.quality import ShuffleQuality, quality_of, shuffle_quality

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
ROWS, BATCH = 20_000, 100


def quality_of_order(order: np.ndarray) -> ShuffleQuality:
    positions = np.arange(ROWS).reshape(-1, BATCH)
    return quality_of(order.reshape(-1, BATCH), positions, np.arange(200, ROWS + 200, 200), np.array([0, ROWS]))


def quality(index: Index, **data: object) -> ShuffleQuality:
    found = shuffle_quality(make_data_plan(data_job("x", batch=64, **data), index), index)
    assert found is not None
    return found


def test_a_full_permutation_is_one() -> None:
    found = quality_of_order(np.random.default_rng(3).permutation(ROWS))
    assert found.unit_diversity == pytest.approx(1, abs=0.02)
    assert found.label_entropy == pytest.approx(1, abs=0.02)
    assert found.displacement == pytest.approx(1 / 3, abs=0.02)
    assert found.neighbour_correlation == pytest.approx(0, abs=0.03)
    assert found.num_batches == ROWS // BATCH


def test_the_order_of_the_files_is_nearly_nothing() -> None:
    found = quality_of_order(np.arange(ROWS))
    assert found.unit_diversity < 0.05
    assert found.label_entropy < 0.1
    assert found.displacement == 0
    assert found.neighbour_correlation > 0.99


def test_rows_that_move_far_with_their_neighbours_are_told_by_all_but_the_displacement() -> None:
    blocks = np.random.default_rng(3).permutation(ROWS // 200)
    found = quality_of_order((blocks[:, None] * 200 + np.arange(200)).reshape(-1))
    assert found.displacement == pytest.approx(1 / 3, abs=0.05)
    assert found.unit_diversity < 0.05
    assert found.label_entropy < 0.1


def test_a_larger_buffer_and_more_lanes_mix_more() -> None:
    index = made_up_index([500] * 100)
    small, large = (quality(index, shuffle={"lanes": 8, "buffer_size": rows}) for rows in (64, 40_000))
    assert small.unit_diversity < large.unit_diversity
    few, many = (quality(index, shuffle={"lanes": lanes, "buffer_size": 6400}) for lanes in (4, 64))
    assert few.unit_diversity < many.unit_diversity
    assert few.label_entropy < many.label_entropy


@pytest.mark.parametrize(
    "data",
    [{"layout": "pack", "packing": {"form": "stream"}, "train": {"steps": 9}}, {"remainder": "mask"}, {"epochs": 3}],
)
def test_every_layout_and_mixture_has_a_quality(data: dict[str, object]) -> None:
    index = made_up_index([100] * 40, [10] * 300, weights=(3.0, 1.0))
    sources = [{"files": "x", "weight": 3.0}, {"files": "y", "weight": 1.0}]
    plan = make_data_plan(data_job(sources, batch=64, **data), index)
    found = shuffle_quality(plan, index)
    assert found is not None
    assert 0.7 < found.label_entropy < 1.1


def test_a_loader_tells_the_quality_of_its_epochs_the_same_on_all_hosts(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [300, 200]), batch=8, hosts=2)
    index = build_index(job)
    found = []
    for rank in range(2):
        with Loader(job, Host(rank, 2), index, BytePipeline()) as loader:
            found.append(loader.shuffle_quality())
    assert found[0] == found[1] != None  # noqa: E711  (both at once)
    ordered = data_job(write_parquet(tmp_path, [300, 200]), batch=8, shuffle={"order": "sequential"})
    with Loader(ordered, Host(0, 1), index, BytePipeline()) as loader:
        assert loader.shuffle_quality() is None


def test_no_full_batch_has_no_quality() -> None:
    index = made_up_index([5])
    assert shuffle_quality(make_data_plan(data_job("x", batch=64, remainder="mask"), index), index) is None


def test_the_table_of_the_documentation_is_what_the_command_prints() -> None:
    assert "\n".join(shuffle.lines()) in DOCS.read_text()
