"""The hash of global batches sees every token and the order of rows, and not the number of hosts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpuworker.preflight.digest import global_digests, joined, row_digests

ROWS, LENGTH, BATCHES = 12, 5, 3


def corpus(seed: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [
        {name: random.integers(0, 9, (ROWS, LENGTH), dtype=np.int32) for name in ("input_ids", "labels")}
        for _ in range(BATCHES)
    ]


def hashed(batches: list[dict[str, np.ndarray]], num_hosts: int) -> tuple[str, ...]:
    share = ROWS // num_hosts
    hosts = [
        b"".join(
            row_digests({name: rows[host * share : (host + 1) * share] for name, rows in batch.items()})
            for batch in batches
        )
        for host in range(num_hosts)
    ]
    return global_digests(hosts, len(batches))


@given(seed=st.integers(0, 2**32 - 1), num_hosts=st.sampled_from([2, 3, 4, 6, 12]))
def test_any_number_of_hosts_gives_the_same_hashes(seed: int, num_hosts: int) -> None:
    batches = corpus(seed)
    assert hashed(batches, num_hosts) == hashed(batches, 1)


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(0, BATCHES - 1),
    row=st.integers(0, ROWS - 1),
    column=st.integers(0, LENGTH - 1),
    name=st.sampled_from(["input_ids", "labels"]),
)
def test_one_other_token_changes_the_hash_of_its_batch_alone(
    seed: int, batch: int, row: int, column: int, name: str
) -> None:
    batches = corpus(seed)
    before = hashed(batches, 2)
    batches[batch][name][row, column] += 1
    after = hashed(batches, 2)
    assert [old != new for old, new in zip(before, after, strict=True)] == [at == batch for at in range(BATCHES)]


def test_rows_in_another_order_change_the_hash() -> None:
    batches = corpus(1)
    before = hashed(batches, 3)
    for rows in batches[0].values():
        rows[[0, 11]] = rows[[11, 0]]
    assert hashed(batches, 3)[0] != before[0]


def test_the_joined_hash_depends_on_the_order_of_batches() -> None:
    assert joined(["a", "b"]) != joined(["b", "a"])


def test_the_hash_is_frozen() -> None:
    arrays = {"input_ids": np.arange(6, dtype=np.int32).reshape(2, 3)}
    assert global_digests([row_digests(arrays)], 1) == ("96f2e9138d40039b",)
