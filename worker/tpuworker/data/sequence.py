"""The rows of any step: from (step, lane, slot) to (source, unit, row), for one source or a mixture; no state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tpuworker.data.index import Index
from tpuworker.data.lanes import SourceOrder, Spans, cut
from tpuworker.data.mixture import Mixture
from tpuworker.data.order import Int64s
from tpuworker.data.plan import DataPlan

#: Source of a place that fills up the last batch of an epoch.
FILLER = -1
#: A source and a unit in one number.
_UNIT_BITS = 40


@dataclass(frozen=True)
class RowRefs:
    """Rows by where they lie, in the order of the batch.

    Attributes:
        sources: int64 [rows]; ``FILLER`` for a place that no row fills.
        units: Unit of the source, int64 [rows].
        rows: Row of the unit, int64 [rows].
        open_units: (source, unit) of every unit whose window these rows belong to, each once.
    """

    sources: Int64s
    units: Int64s
    rows: Int64s
    open_units: tuple[tuple[int, int], ...]

    @cached_property
    def by_unit(self) -> tuple[tuple[tuple[int, int], Int64s], ...]:
        """(source, unit) of every unit that rows lie in, ascending, with the places of its rows, ascending.

        Places that no row fills are left out.
        """
        keys = (self.sources << _UNIT_BITS) | self.units
        order = np.argsort(keys, kind="stable")
        firsts = np.flatnonzero(np.diff(keys[order], prepend=keys.min(initial=0) - 1))
        heads = order[firsts]
        units = zip(self.sources[heads].tolist(), self.units[heads].tolist(), strict=True)
        edges = zip(firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True)
        return tuple(
            (unit, order[first:last]) for unit, (first, last) in zip(units, edges, strict=True) if unit[0] != FILLER
        )

    @property
    def touched(self) -> tuple[tuple[int, int], ...]:
        """The units that rows lie in: they are decoded before the rest of their windows."""
        return tuple(unit for unit, _ in self.by_unit)


class Sequence:
    """The order of a whole job.

    Args:
        plan: The numbers.
        index: The units.
    """

    def __init__(self, plan: DataPlan, index: Index) -> None:
        self._plan = plan
        in_lanes = plan.shuffled or plan.packing == "stream"
        self._lanes = plan.num_lanes if in_lanes else 1
        self._mixture = (
            Mixture(np.array(plan.source_counts, dtype=np.int64), plan.seed, plan.shuffled) if plan.is_mixture else None
        )
        self._orders = [
            SourceOrder(
                source=source.number,
                unit_rows=source.unit_rows,
                spans=self._spans(source.num_rows),
                window_rows=window,
                seed=plan.seed,
                shuffled=plan.shuffled,
            )
            for source, window in zip(index.ordered.sources, plan.window_rows, strict=True)
        ]

    def _spans(self, num_rows: int) -> Spans:
        if self._mixture is not None:
            length = num_rows // self._lanes
            return Spans(np.arange(self._lanes) * length, np.full(self._lanes, length, dtype=np.int64))
        if self._plan.packing == "stream":
            return cut(num_rows, self._lanes, self._lanes)
        delivered = num_rows if self._plan.remainder == "mask" else self._plan.steps_per_epoch * self._batch
        return cut(delivered, self._lanes, self._batch)

    @property
    def _batch(self) -> int:
        return self._plan.global_batch_size

    def rows(self, first_step: int, num_steps: int, lanes: range) -> RowRefs:
        """Return the rows of some lanes over some steps.

        Args:
            first_step: Step of the job, from 0, epochs counted through.
            num_steps: How many steps.
            lanes: A run of lanes, for instance those of one host.

        Returns:
            num_steps x lanes x slots rows: step by step, in a step lane by lane, in a lane slot by slot.
        """
        slots = self._batch // self._plan.num_lanes
        steps = np.repeat(np.arange(first_step, first_step + num_steps), len(lanes) * slots)
        slot = np.tile(np.arange(lanes.start * slots, lanes.stop * slots), num_steps)
        if self._mixture is None:
            epochs, steps = np.divmod(steps, self._plan.steps_per_epoch)
            lane, offsets = self._places(steps, slot)
            sources = np.where(offsets < self._orders[0].spans.lengths[lane], 0, FILLER)
        else:
            lane, places = self._places(steps, slot)
            sources, ordinals = self._mixture.assign(lane, places)
            lengths = np.array([order.spans.lengths[0] for order in self._orders])
            epochs, offsets = np.divmod(ordinals, lengths[sources])
        return self._located(sources, epochs, lane, offsets)

    def documents(self, lanes: Int64s, places: Int64s) -> RowRefs:
        """Return the documents at places of lanes, for layouts that read as many as they need.

        Args:
            lanes: Lane, int64 [documents].
            places: Place in the lane since the start of the job, int64 [documents]; a lane that ends begins again.
        """
        if self._mixture is None:
            lengths = self._orders[0].spans.lengths[lanes]
            epochs, offsets = np.divmod(places, lengths)
            return self._located(np.zeros_like(lanes), epochs, lanes, offsets)
        sources, ordinals = self._mixture.assign(lanes, places)
        each = np.array([order.spans.lengths[0] for order in self._orders])
        epochs, offsets = np.divmod(ordinals, each[sources])
        return self._located(sources, epochs, lanes, offsets)

    def _places(self, steps: Int64s, slot: Int64s) -> tuple[Int64s, Int64s]:
        """Return lane and place in the lane; in sequential order there is one lane, the global batch itself."""
        if not self._plan.shuffled:
            return np.zeros_like(slot), steps * self._batch + slot
        slots = self._batch // self._plan.num_lanes
        return slot // slots, steps * slots + slot % slots

    def _located(self, sources: Int64s, epochs: Int64s, lanes: Int64s, offsets: Int64s) -> RowRefs:
        units, rows = np.zeros_like(sources), np.zeros_like(sources)
        opened: dict[tuple[int, int], None] = {}
        for number, order in enumerate(self._orders):
            # Lane by lane, so that places of one window stand together.
            here = np.flatnonzero(sources == number)
            here = here[np.lexsort((offsets[here], lanes[here], epochs[here]))]
            units[here], rows[here] = order.locate(epochs[here], lanes[here], offsets[here])
            firsts, lasts = _runs(epochs[here], lanes[here])
            if self._plan.shuffled:
                at = here[firsts]
                found = order.open_units(epochs[at], lanes[at], offsets[at], offsets[here[lasts]])
                opened |= dict.fromkeys((number, unit) for unit in found.tolist())
            else:
                for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                    opened |= dict.fromkeys((number, int(unit)) for unit in np.unique(units[here[first : last + 1]]))
        return RowRefs(sources, units, rows, tuple(opened))


def _runs(epochs: Int64s, lanes: Int64s) -> tuple[Int64s, Int64s]:
    """Return first and last index of every run of equal (epoch, lane), int64 [runs] each."""
    begins = np.ones(len(epochs), np.bool_)
    begins[1:] = (epochs[1:] != epochs[:-1]) | (lanes[1:] != lanes[:-1])
    firsts = np.flatnonzero(begins)
    return firsts, np.append(firsts, len(epochs))[1:] - 1
