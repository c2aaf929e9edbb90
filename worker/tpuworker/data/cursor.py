"""Where a run stands: one small JSON, equal on all hosts, from which any number of hosts goes on exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tpuworker.data.order import ORDER_VERSION
from tpuworker.data.plan import DataPlan
from tpuworker.errors import DataError, Fault

CURSOR_FORMAT = 1

#: Said once, however much has changed.
_REMEDY = "undo the change, or go on in the changed data with --accept-changed-data"


@dataclass(frozen=True)
class Cursor:
    """The state of the data after a step.

    Attributes:
        step: Steps that are done, over all epochs; the next batch is that of this number.
        steps_per_epoch: Steps of an epoch, so that ``epoch`` is ``step // steps_per_epoch``.
        num_lanes: Lanes; part of the order.
        window_rows: Rows of a window, for each source; part of the order.
        global_batch_size: Rows of a step.
        seed: Key of the order.
        shuffled: Whether rows are shuffled.
        remainder: The rule for the remainder.
        source_counts: Places of each source in a block of a mixture.
        fingerprints: What the batches are made of (files, tokenizer, template, layout), name to short text.
        lanes: State of each lane by number, for layouts whose place does not follow from the step; else empty.
        order_version: Version of the order's definition.
    """

    step: int
    steps_per_epoch: int
    num_lanes: int
    window_rows: tuple[int, ...]
    global_batch_size: int
    seed: int
    shuffled: bool
    remainder: str
    source_counts: tuple[int, ...]
    fingerprints: Mapping[str, str]
    lanes: Mapping[str, Any]
    order_version: int = ORDER_VERSION

    @classmethod
    def start(cls, plan: DataPlan, fingerprints: Mapping[str, str]) -> Cursor:
        """Return the cursor before the first step of a plan.

        Args:
            plan: The numbers.
            fingerprints: Those of the index and of the pipeline, together.
        """
        return cls(
            step=0,
            steps_per_epoch=plan.steps_per_epoch,
            num_lanes=plan.num_lanes,
            window_rows=plan.window_rows,
            global_batch_size=plan.global_batch_size,
            seed=plan.seed,
            shuffled=plan.shuffled,
            remainder=plan.remainder,
            source_counts=plan.source_counts,
            fingerprints=dict(fingerprints),
            lanes={},
        )

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self.step // self.steps_per_epoch

    def after(self, step: int, lanes: Mapping[str, Any] | None = None) -> Cursor:
        """Return the cursor once ``step`` steps are done."""
        return replace(self, step=step, lanes=dict(lanes or {}))

    @classmethod
    def merged(cls, cursors: Sequence[Cursor]) -> Cursor:
        """Return the cursor of the whole job from those of its hosts, each of which knows its own lanes.

        Raises:
            DataError: They stand at different steps, or lanes are missing.
        """
        first = cursors[0]
        lanes = {lane: state for cursor in cursors for lane, state in cursor.lanes.items()}
        if {cursor.step for cursor in cursors} != {first.step} or (lanes and len(lanes) != first.num_lanes):
            steps = sorted({cursor.step for cursor in cursors})
            found = f"{len(lanes)} lanes at steps {', '.join(map(str, steps))}"
            raise DataError([Fault("cursors of the hosts", found, f"{first.num_lanes} lanes at one step")])
        return replace(first, lanes=dict(sorted(lanes.items(), key=lambda item: int(item[0]))))

    def check(self, against: Cursor) -> list[Fault]:
        """Return every way in which this cursor belongs to other data than ``against``, which describes the job now.

        The number of hosts is none of them; lanes and windows are the cursor's own and go over into the plan.
        """
        pairs: dict[str, tuple[Any, Any]] = {
            "order version": (self.order_version, against.order_version),
            "seed": (self.seed, against.seed),
            "order": (_order(self.shuffled), _order(against.shuffled)),
            "global batch size": (self.global_batch_size, against.global_batch_size),
            "remainder": (self.remainder, against.remainder),
            "mixture": (self.source_counts, against.source_counts),
        }
        if not self.lanes:  # lanes of a stream have epochs of their own, and the steps are the spec's
            pairs["steps per epoch"] = (self.steps_per_epoch, against.steps_per_epoch)
        for name in dict.fromkeys([*self.fingerprints, *against.fingerprints]):
            pairs[name] = (self.fingerprints.get(name, "nothing"), against.fingerprints.get(name, "nothing"))
        faults = [
            Fault(f"cursor at step {self.step}: {name}", str(now), f"{before}, as in the run that is resumed")
            for name, (before, now) in pairs.items()
            if before != now
        ]
        return [*faults[:-1], *(replace(last, hint=_REMEDY) for last in faults[-1:])]

    def to_json(self) -> str:
        """Return the cursor as one line of JSON, keys sorted, so that equal cursors are equal bytes."""
        return json.dumps({"format": CURSOR_FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """Return the cursor that :meth:`to_json` wrote.

        Raises:
            DataError: No cursor, a damaged one, or one of another version.
        """
        try:
            content = json.loads(text)
            found = content.pop("format")
            if found == CURSOR_FORMAT:
                for name in ("window_rows", "source_counts"):
                    content[name] = tuple(content[name])
                return cls(**content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError([Fault("cursor", f"{text[:60]!r} ({error})", "the JSON of a cursor")]) from error
        raise DataError(
            [Fault("cursor", f"format {found}", f"format {CURSOR_FORMAT}", "resume with the version it needs")]
        )


def _order(shuffled: bool) -> str:
    return "shuffled" if shuffled else "sequential"
