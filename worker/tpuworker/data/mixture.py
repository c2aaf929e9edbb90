"""Which source each place of a lane comes from: exact counts in every block, evenly spread in it, by key.

A block has 2^k places. In each, source i has the same whole number of places, by largest remainder of the weights, so
that the position of a source is found without walking: ``block * count + rank in the block``. k is the smallest from 10
to 14 at which every share is met within one percent, else 14. Inside a block the rows of a source stand one to each of
as many equal stretches, at a drawn place of it, so that shares hold over a few batches too and lanes keep in step.
Sources go on from one epoch of the mixture to the next, and one that ends begins its own next epoch, in a new order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tpuworker.data.order import Int64s, permute, round_keys

_SMALLEST_BITS = 10
_LARGEST_BITS = 14
_TOLERANCE = 0.01
_DRAWS = 1 << 32


def block_counts(weights: Sequence[float]) -> Int64s:
    """Return the places of each source in a block, int64 [sources]; every source has one at least.

    Args:
        weights: Relative weights, all positive.
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    counts = np.zeros(len(shares), dtype=np.int64)
    for bits in range(_SMALLEST_BITS, _LARGEST_BITS + 1):
        places = 1 << bits
        counts[:] = np.maximum(1, np.floor(shares * places)).astype(np.int64)
        by_need = np.argsort(counts - shares * places, kind="stable")
        missing = places - int(counts.sum())
        if missing > 0:
            counts[by_need[:missing]] += 1
        else:  # tiny weights were raised to one place: the largest pay for them
            counts[np.argmax(counts)] += missing
        if np.all(np.abs(counts / places - shares) <= _TOLERANCE * shares):
            break
    return counts


@dataclass(frozen=True)
class Mixture:
    """The blocks of a mixture.

    Attributes:
        counts: Places of each source in a block, int64 [sources].
        seed: Key of the order.
        shuffled: False spreads each source over the block the same way in every block.
    """

    counts: Int64s
    seed: int
    shuffled: bool

    @property
    def block(self) -> int:
        """Places of a block."""
        return int(self.counts.sum())

    def assign(self, lanes: Int64s, places: Int64s) -> tuple[Int64s, Int64s]:
        """Return source and ordinal in that source, counted from the start of the lane and of the job.

        Args:
            lanes: Lane, int64 [places].
            places: Place in the lane since the start of the job, int64 [places].

        Returns:
            Sources and ordinals, int64 [places] each; a source's ordinals rise by one from place to place of a lane.
        """
        blocks, inside = np.divmod(places, self.block)
        sources, ordinals = np.empty_like(places), np.empty_like(places)
        labels = np.stack([lanes, blocks])
        changes = np.flatnonzero(np.any(labels[:, 1:] != labels[:, :-1], axis=0)) + 1
        for here in np.split(np.arange(places.size), changes):
            if here.size:
                of_block, ranks = self._pattern(int(lanes[here[0]]), int(blocks[here[0]]))
                sources[here] = of_block[inside[here]]
                ordinals[here] = ranks[inside[here]]
        ordinals += blocks * self.counts[sources]
        return sources, ordinals

    def _pattern(self, lane: int, block: int) -> tuple[Int64s, Int64s]:
        if not self.shuffled:
            return _pattern(tuple(self.counts.tolist()), "")
        name = f"seed={self.seed}/mixture/lane={lane}/block={block}"
        return _pattern(tuple(self.counts.tolist()), name)

    def places_until_first_end(self, lengths: Int64s, num_lanes: int) -> int:
        """Return the places of a lane that can be filled, in every lane, before any source has to begin again.

        Args:
            lengths: Rows that a lane of each source has, int64 [sources].
            num_lanes: Lanes.
        """
        whole = int((lengths // self.counts).min())
        used = self._used_in_block(whole, num_lanes)
        fits = np.all(used <= (lengths - whole * self.counts), axis=(0, 2))
        return whole * self.block + int(np.argmin(fits) if not fits.all() else len(fits))

    def places_until_all_ended(self, lengths: Int64s, num_lanes: int) -> int:
        """Return the places of a lane after which every source was seen whole in every lane."""
        whole = int((lengths // self.counts).max())
        used = self._used_in_block(whole, num_lanes)
        done = np.all(used >= (lengths - whole * self.counts), axis=(0, 2))
        rest = 0 if np.all(lengths <= whole * self.counts) else int(np.argmax(done)) + 1
        return whole * self.block + rest

    def _used_in_block(self, block: int, num_lanes: int) -> Int64s:
        """Return how often each source was drawn up to and with each place, int64 [lanes, places, sources]."""
        lanes = np.repeat(np.arange(num_lanes), self.block)
        places = np.tile(block * self.block + np.arange(self.block), num_lanes)
        sources = self.assign(lanes, places)[0].reshape(num_lanes, self.block, 1)
        return np.cumsum(sources == np.arange(len(self.counts)), axis=1)


@lru_cache(maxsize=256)
def _pattern(counts: tuple[int, ...], name: str) -> tuple[Int64s, Int64s]:
    """Return source and rank in the source of each place of a block, int64 [places] each.

    Row k of a source with c places stands at (k + u) / c of the block, u in [0, 1) drawn by key (one half without a
    name); equal places go by source.
    """
    sizes = np.array(counts, dtype=np.int64)
    sources = np.repeat(np.arange(len(sizes)), sizes)
    ranks: Int64s = np.arange(len(sources), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    drawn = np.full(len(sources), _DRAWS // 2)
    if name:
        drawn = permute(np.arange(len(sources)), _DRAWS, round_keys(name))
    order = np.lexsort((sources, (ranks + drawn / _DRAWS) / sizes[sources]))
    return sources[order], ranks[order]
