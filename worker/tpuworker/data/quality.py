"""How well an epoch is shuffled: its batches as they will be, beside batches drawn at random from all of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpuworker.data.index import Index
from tpuworker.data.order import Int64s
from tpuworker.data.plan import DataPlan
from tpuworker.data.sequence import FILLER, RowRefs, Sequence

#: As if the data stood sorted by so many labels, the worst case for a shuffle that only mixes neighbours.
NUM_LABELS = 100
#: Enough for two digits; all batches of small data.
_MOST_BATCHES = 128
_MOST_ROWS = 1 << 17


@dataclass(frozen=True)
class ShuffleQuality:
    """Batches of one epoch against a full permutation of its rows.

    Attributes:
        unit_diversity: Distinct units (row groups, spans of files) in a batch over those of a random batch; 1 is a full
            permutation, and a little more is possible, since lanes take care to be apart.
        label_entropy: Entropy of the labels in a batch, if the data were sorted by label, over that of a random batch.
        displacement: Mean distance of a row from its place in the files, as a share of all rows; 1/3 is a full
            permutation. It says that rows move far, not that those beside them stay behind: no measure on its own.
        neighbour_correlation: Correlation of the places in the files of rows that stand side by side in a batch; 0 is a
            full permutation.
        num_batches: Batches that were looked at.
    """

    unit_diversity: float
    label_entropy: float
    displacement: float
    neighbour_correlation: float
    num_batches: int

    def sentence(self) -> str:
        """Return what a person should know."""
        return (
            f"a batch has {self.unit_diversity:.0%} of the units and {self.label_entropy:.0%} of the label entropy of "
            f"a random one; neighbours correlate by {self.neighbour_correlation:.2f}"
        )


def shuffle_quality(plan: DataPlan, index: Index, most_batches: int = _MOST_BATCHES) -> ShuffleQuality | None:
    """Return the quality of the first epoch; None if no batch is full.

    Where documents are packed as a stream, each place of a lane counts as one document, since how many a row takes is
    known only once they are tokenised.

    Args:
        plan: The numbers.
        index: The units; with token counts, where documents are packed exactly.
        most_batches: Batches that are looked at, evenly spread over the epoch.
    """
    sources = index.ordered.sources
    bounds = np.cumsum([0, *(source.num_rows for source in sources)])
    num_rows = int(bounds[-1])
    num_steps = num_rows // plan.global_batch_size if plan.packing == "stream" else plan.steps_per_epoch
    count = min(num_steps, most_batches, max(1, _MOST_ROWS // plan.global_batch_size))
    steps = np.unique(np.linspace(0, num_steps - 1, count).astype(np.int64)) if num_steps else np.zeros(0, np.int64)
    starts = [np.cumsum(source.unit_rows) - source.unit_rows for source in sources]
    sequence = Sequence(plan, index)
    full, places = [], []
    for step in steps.tolist():
        refs = _batch(plan, sequence, step)
        if (refs.sources != FILLER).all():
            full.append(step)
            places.append(_places(refs, bounds, starts))
    if not full:
        return None
    positions = np.array(full)[:, None] * plan.global_batch_size + np.arange(plan.global_batch_size)
    ends = np.concatenate([bounds[number] + start for number, start in enumerate(starts)] + [bounds[-1:]])[1:]
    return quality_of(np.array(places), positions, ends, bounds)


def quality_of(places: Int64s, positions: Int64s, unit_ends: Int64s, bounds: Int64s) -> ShuffleQuality:
    """Return the quality of batches, however they were made.

    Args:
        places: Rows by their number in the files, from 0, all sources one behind the other, int64 [batches, rows].
        positions: Where each stands in the epoch, int64 [batches, rows].
        unit_ends: Row after the last one of each unit, int64 [units].
        bounds: First row of each source, and the number of all rows, int64 [sources + 1]. A random batch has as many
            rows of each source as the batch that it is compared with.
    """
    num_rows = int(bounds[-1])
    source = np.searchsorted(bounds, places, side="right") - 1
    # Any generator would do: it is the yardstick, not an order that somebody trains on.
    random = np.random.default_rng(0).integers(bounds[source], bounds[source + 1])
    return ShuffleQuality(
        unit_diversity=_distinct(places, unit_ends) / _distinct(random, unit_ends),
        label_entropy=_ratio(_entropy(places, num_rows), _entropy(random, num_rows)),
        displacement=float(np.abs(places - positions).mean()) / num_rows,
        neighbour_correlation=_correlation(places),
        num_batches=len(places),
    )


def _batch(plan: DataPlan, sequence: Sequence, step: int) -> RowRefs:
    if plan.packing != "stream":
        return sequence.rows(step, 1, range(plan.num_lanes))
    slots = plan.global_batch_size // plan.num_lanes
    lanes = np.repeat(np.arange(plan.num_lanes), slots)
    return sequence.documents(lanes, step * slots + np.tile(np.arange(slots), plan.num_lanes))


def _places(refs: RowRefs, bounds: Int64s, starts: list[Int64s]) -> Int64s:
    places = bounds[refs.sources] + refs.rows
    for number, start in enumerate(starts):
        here = refs.sources == number
        places[here] += start[refs.units[here]]
    return places


def _distinct(places: Int64s, unit_ends: Int64s) -> float:
    units = np.sort(np.searchsorted(unit_ends, places, side="right"), axis=1)
    return float((1 + np.count_nonzero(np.diff(units, axis=1), axis=1)).mean())


def _entropy(places: Int64s, num_rows: int) -> float:
    """Return the mean entropy of the labels of a batch, in bits."""
    labels = places * NUM_LABELS // num_rows
    batches = np.arange(len(places))[:, None] * NUM_LABELS
    counts = np.bincount((labels + batches).reshape(-1), minlength=len(places) * NUM_LABELS)
    shares: npt.NDArray[np.float64] = counts.reshape(len(places), NUM_LABELS) / places.shape[1]
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return float(-(shares * logs).sum(axis=1).mean())


def _ratio(found: float, wanted: float) -> float:
    return found / wanted if wanted else 1.0


def _correlation(places: Int64s) -> float:
    left, right = places[:, :-1].reshape(-1).astype(np.float64), places[:, 1:].reshape(-1).astype(np.float64)
    spread = left.std() * right.std() if left.size else 0.0
    return float(((left - left.mean()) * (right - right.mean())).mean() / spread) if spread else 0.0


__all__ = ["NUM_LABELS", "ShuffleQuality", "quality_of", "shuffle_quality"]
