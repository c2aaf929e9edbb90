"""Lanes and windows of one source: from a place in a lane to a unit and a row in it, as a pure function.

The rows of an epoch stand in one permuted sequence: the units in the order of a keyed permutation, each with its rows.
The sequence is cut into V spans, the lanes. In a lane, windows of consecutive rows are permuted, each by its own key.
Lane v starts with a window shortened by v/V of its length, so that the lanes open new units at different steps and
reading goes on evenly. Nothing here knows how many hosts there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tpuworker.data.order import Int64s, UInt64s, keys_by_group, permute, round_keys


@dataclass(frozen=True)
class Spans:
    """How the rows of an epoch are cut into lanes.

    Attributes:
        starts: First position of each lane in the permuted sequence, int64 [lanes].
        lengths: Rows of each lane, int64 [lanes]; they differ by one at most.
    """

    starts: Int64s
    lengths: Int64s

    @property
    def num_lanes(self) -> int:
        """Lanes."""
        return len(self.starts)


def cut(num_rows: int, num_lanes: int, rows_per_step: int) -> Spans:
    """Return lanes that fill whole steps equally, and share what is left over for one more.

    Args:
        num_rows: Rows to deliver in the epoch.
        num_lanes: Lanes; they divide ``rows_per_step``.
        rows_per_step: Rows of a global batch.
    """
    whole_steps, rest = divmod(num_rows, rows_per_step)
    share, extra = divmod(rest, num_lanes)
    lengths = np.full(num_lanes, whole_steps * (rows_per_step // num_lanes) + share, dtype=np.int64)
    lengths[:extra] += 1
    return Spans(starts=np.cumsum(lengths) - lengths, lengths=lengths)


class SourceOrder:
    """The order of one source over all its epochs.

    Args:
        source: Its number in the spec; part of every key.
        unit_rows: Rows of each unit, int64 [units], none of them 0.
        spans: Its lanes.
        window_rows: Rows of a window.
        seed: Key of the order.
        shuffled: False keeps units, lanes' rows and so everything in the order of the files.
    """

    def __init__(
        self, *, source: int, unit_rows: Int64s, spans: Spans, window_rows: int, seed: int, shuffled: bool
    ) -> None:
        self.source = source
        self.spans = spans
        self.window_rows = window_rows
        self._unit_rows = unit_rows
        self._seed = seed
        self._shuffled = shuffled
        self._name = f"seed={seed}/epoch={{epoch}}/source={source}"
        # Two epochs meet in a batch at most, and a mixture may look one ahead.
        self._units_of_epoch = lru_cache(maxsize=4)(self._permuted_units)

    def locate(self, epochs: Int64s, lanes: Int64s, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return unit and row in the unit of each place.

        Args:
            epochs: Epoch of the source, int64 [places].
            lanes: Lane, int64 [places].
            offsets: Place in the lane, int64 [places], each below the lane's length.

        Returns:
            Units and rows, int64 [places] each.
        """
        positions = self.spans.starts[lanes] + self._inside_windows(epochs, lanes, offsets)
        units, rows = np.empty_like(positions), np.empty_like(positions)
        for epoch in np.unique(epochs):
            here = np.flatnonzero(epochs == epoch)
            order, ends = self._units_of_epoch(int(epoch))
            ranks = np.searchsorted(ends, positions[here], side="right")
            units[here] = order[ranks]
            rows[here] = positions[here] - (ends[ranks] - self._unit_rows[units[here]])
        return units, rows

    def open_units(self, epochs: Int64s, lanes: Int64s, firsts: Int64s, lasts: Int64s) -> Int64s:
        """Return the units of every window that holds a place of some runs of places, run after run.

        A reader that keeps these decodes each unit once per lane.

        Args:
            epochs: Epoch of each run, int64 [runs], not falling.
            lanes: Its lane, int64 [runs].
            firsts: Its first place in the lane, int64 [runs].
            lasts: Its last one, int64 [runs].
        """
        starts = self.spans.starts[lanes]
        begins, _ = self._window(lanes, firsts)
        last_begins, last_rows = self._window(lanes, lasts)
        found = [np.zeros(0, np.int64)]
        for epoch in np.unique(epochs):
            here = epochs == epoch
            order, ends = self._units_of_epoch(int(epoch))
            low = np.searchsorted(ends, (starts + begins)[here], side="right")
            high = np.searchsorted(ends, (starts + last_begins + last_rows)[here] - 1, side="right")
            found += [order[first : last + 1] for first, last in zip(low.tolist(), high.tolist(), strict=True)]
        return np.concatenate(found)

    def _window(self, lanes: Int64s, offsets: Int64s) -> tuple[Int64s, Int64s]:
        """Return first place and number of rows of the windows that hold the given places."""
        phases = lanes * self.window_rows // self.spans.num_lanes
        edges = (offsets + phases) // self.window_rows * self.window_rows - phases
        begins = np.maximum(edges, 0)
        return begins, np.minimum(edges + self.window_rows, self.spans.lengths[lanes]) - begins

    def _inside_windows(self, epochs: Int64s, lanes: Int64s, offsets: Int64s) -> Int64s:
        if not self._shuffled or not offsets.size:
            return offsets
        begins, rows = self._window(lanes, offsets)
        keys = keys_by_group(np.stack([epochs, lanes, begins]), self._window_keys)
        return begins + permute(offsets - begins, rows, keys)

    def _window_keys(self, epoch: int, lane: int, begin: int) -> UInt64s:
        return round_keys(f"{self._name.format(epoch=epoch)}/lane={lane}/window={begin}")

    def _permuted_units(self, epoch: int) -> tuple[Int64s, Int64s]:
        order = np.arange(len(self._unit_rows), dtype=np.int64)
        if self._shuffled:
            order = permute(order, len(order), round_keys(f"{self._name.format(epoch=epoch)}/units"))
        return order, np.cumsum(self._unit_rows[order])
