"""Which source each place of a lane comes from: exact counts in every block, the order inside it by key.

A block has 2^k places. In each, source i has the same whole number of places, by largest remainder of the weights, so
that the place of a source is found without walking: ``block * count + ordinal``. k is the smallest from 10 to 14 at
which every share is met within one percent, else 14. Sources go on from one epoch of the mixture to the next, and one
that ends begins its own next epoch, in a new order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpuworker.data.order import Int64s, UInt64s, keys_by_group, permute, round_keys

_SMALLEST_BITS = 10
_LARGEST_BITS = 14
_TOLERANCE = 0.01


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
        shuffled: False spreads each source evenly over the block, the same way in every block.
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
            Sources and ordinals, int64 [places] each.
        """
        blocks, inside = np.divmod(places, self.block)
        ends = np.cumsum(self.counts)
        if not self.shuffled:
            pattern, ranks = self._even_pattern()
            sources = pattern[inside]
            return sources, blocks * self.counts[sources] + ranks[inside]
        drawn = permute(inside, self.block, keys_by_group(np.stack([lanes, blocks]), self._keys))
        sources = np.searchsorted(ends, drawn, side="right")
        return sources, blocks * self.counts[sources] + drawn - (ends - self.counts)[sources]

    def _keys(self, lane: int, block: int) -> UInt64s:
        return round_keys(f"seed={self.seed}/mixture/lane={lane}/block={block}")

    def _even_pattern(self) -> tuple[Int64s, Int64s]:
        """Return source and rank of each place when every source is spread evenly over the block."""
        sources = np.repeat(np.arange(len(self.counts)), self.counts)
        ranks = np.concatenate([np.arange(count) for count in self.counts])
        middles = (ranks + 0.5) / self.counts[sources]
        order = np.lexsort((sources, middles))
        return sources[order], ranks[order]

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
