"""What a host looks at in a file: both ends, evenly between, and never more than the file's share."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tpuworker.preflight.files import blocks

MIB = 2**20
SHARES = st.integers(16 * 2**10, 128 * MIB)


@given(share=SHARES, size=st.integers(0, 128 * MIB))
def test_a_file_within_its_share_is_read_whole(share: int, size: int) -> None:
    size = min(size, share)
    assert list(blocks(size, share)) == [(0, size)]


@given(share=SHARES, beyond=st.integers(1, 2**50))
def test_of_a_larger_file_both_ends_are_seen_and_blocks_evenly_between(share: int, beyond: int) -> None:
    size = share + beyond
    spans = list(blocks(size, share))
    assert spans[0][0] == 0
    assert spans[-1][1] == size
    assert share / 2 < sum(stop - start for start, stop in spans) <= share
    gaps = [after[0] - before[1] for before, after in pairwise(spans)]
    assert min(gaps) >= 0
    assert max(gaps) - min(gaps) <= 1
