"""Laws of loaders as programs make them: any world shares the same global batches, and any resume is their tail."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuworker.api.feed import Feed
from tpuworker.api.origins import Named
from tpuworker.api.tokens_recipe import tokens_recipe
from tpuworker.api.world import World


def feed_of(num_rows: int, world: World, batch_size: int, *, seed: int = 5, buffer_size: int = 100) -> Feed:
    """A feed over rows whose ids are their number."""
    rows = Dataset.from_dict({"input_ids": [[number, number] for number in range(num_rows)]})
    return Feed(tokens_recipe(rows, Named(), ("input_ids",), (seed, buffer_size)), world, batch_size)


def numbers(feed: Feed, most: int | None = None) -> list[list[int]]:
    return [batch["input_ids"][:, 0].tolist() for batch in islice(feed, most)]


def joined(parts: list[list[list[int]]]) -> list[list[int]]:
    return [[number for part in step for number in part] for step in zip(*parts, strict=True)]


@settings(max_examples=12)
@given(
    world_size=st.integers(1, 64),
    steps=st.integers(1, 4),
    extra=st.integers(0, 63),
    seed=st.integers(0, 2**40),
    buffer_size=st.integers(1, 300),
)
def test_any_world_up_to_64_ranks_has_the_global_batches_of_one_alone(
    world_size: int, steps: int, extra: int, seed: int, buffer_size: int
) -> None:
    batch_size = max(1, 64 // world_size)
    num_rows = steps * batch_size * world_size + extra % (batch_size * world_size)
    order = {"seed": seed, "buffer_size": buffer_size}
    alone = feed_of(num_rows, World(1, 0), batch_size * world_size, **order)
    whole = numbers(alone)
    alone.close()
    assert [len(set(step)) for step in whole] == [batch_size * world_size] * steps
    assert len({number for step in whole for number in step}) == steps * batch_size * world_size
    # Some ranks of many: each has its own run of every global batch.
    for rank in {0, world_size // 2, world_size - 1}:
        feed = feed_of(num_rows, World(world_size, rank), batch_size, **order)
        mine = slice(rank * batch_size, (rank + 1) * batch_size)
        assert numbers(feed) == [step[mine] for step in whole]
        feed.close()


@settings(max_examples=12)
@given(
    first=st.sampled_from((1, 2, 4, 8, 16, 32, 64)),
    second=st.sampled_from((1, 2, 4, 8, 16, 32, 64)),
    steps=st.integers(2, 5),
    data=st.data(),
)
def test_a_run_resumed_twice_on_other_worlds_is_the_uninterrupted_one(
    first: int, second: int, steps: int, data: st.DataObject
) -> None:
    num_rows = steps * 64 + 7
    alone = feed_of(num_rows, World(1, 0), 64)
    whole = numbers(alone) + numbers(alone) + numbers(alone)
    stop = data.draw(st.integers(1, steps))
    again = data.draw(st.integers(0, steps))
    before = feed_of(num_rows, World(first, first - 1), 64 // first)
    mine = slice(64 - 64 // first, 64)
    assert numbers(before, stop) == [step[mine] for step in whole[:stop]]
    state = json.dumps(before.state_dict())
    resumed = feed_of(num_rows, World(second, 0), 64 // second)
    resumed.load_state_dict(json.loads(state))
    theirs = slice(0, 64 // second)
    end = stop + min(again, steps - stop % steps)
    assert numbers(resumed, end - stop) == [step[theirs] for step in whole[stop:end]]
    third = feed_of(num_rows, World(1, 0), 64)
    third.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
    assert numbers(third) == whole[end : (end // steps + 1) * steps]
    for feed in (alone, before, resumed, third):
        feed.close()


@pytest.mark.parametrize("world_size", [1, 7, 64])
def test_all_ranks_together_deliver_every_row_once_and_stop_together(world_size: int) -> None:
    num_rows = world_size * 6 + world_size - 1
    parts = []
    for rank in range(world_size):
        feed = feed_of(num_rows, World(world_size, rank), 2)
        parts.append(numbers(feed))
        feed.close()
    batches = joined(parts)
    assert len(batches) == 3
    seen = np.sort(np.concatenate(batches))
    assert len(np.unique(seen)) == len(seen) == world_size * 6
