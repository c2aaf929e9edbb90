"""The ``spec.schedule`` section: queue, capacity, restarts and ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from tpuworker.spec.object_names import LabelName, ObjectName
from tpuworker.strict import NonNegativeInt, PositiveInt, StrictModel, raise_all, refusal

#: Seconds between SIGTERM and SIGKILL that Spot leaves to ordinary pods, half of its notice of 30 s.
SPOT_GRACE_SECONDS = 15
#: Limits of cloud.google.com/gke-max-run-duration-seconds: flex-start at most 7 days; others 30 s to 120 d.
_FLEX_RUN_SECONDS = (600, 604_800)
_MAX_RUN_SECONDS = (30, 120 * 86_400)


class ReservationSpec(StrictModel):
    """A reservation to consume."""

    name: LabelName
    """Name of the reservation."""
    project: LabelName | None = None
    """Project that owns it, if shared."""
    block: LabelName | None = None
    """Block in it."""
    sub_block: LabelName | None = None
    """Sub-block in the block."""
    affinity: Literal["specific"] | None = None
    """``specific`` on Autopilot, which asks for it; node pools made by hand need none."""


class ScheduleSpec(StrictModel):
    """How the job waits, where it may run, how often it restarts."""

    queue: LabelName | None = None
    """Kueue LocalQueue. Without it Kueue leaves the job alone."""
    priority: LabelName | None = None
    """Kueue WorkloadPriorityClass (with a queue)."""
    priority_class: ObjectName | None = None
    """Kubernetes PriorityClass of the pods."""
    capacity: Literal["on-demand", "spot", "reservation", "flex-start", "queued"] = "on-demand"
    """Consumption option. Spot and flex-start render the selector and the toleration that each needs."""
    reservation: ReservationSpec | None = None
    """Which reservation; only with ``capacity: reservation``."""
    compute_class: LabelName | None = None
    """ComputeClass; it replaces capacity labels, so only with ``capacity: on-demand``."""
    placement_policy: LabelName | None = None
    """Placement (workload) policy of the node pool."""
    restarts: NonNegativeInt = 3
    """Restarts that failures may use up. Evictions and maintenance never count."""
    max_run_seconds: PositiveInt | None = None
    """Longest run. Limits the nodes where the option has a limit, and the Job everywhere."""
    grace_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Time between SIGTERM and SIGKILL. Spot gives 15 s whatever stands here; Autopilot allows 600."""
    ttl_seconds_after_finished: NonNegativeInt = 43_200
    """How long the finished object stays: logs and status are read from it. 12 hours."""
    multislice_env: Literal["auto", "explicit"] = "auto"
    """``explicit`` renders MEGASCALE_* for clusters whose webhook does not inject them."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        raise_all(self._misfits())
        return self

    def _misfits(self) -> Iterator[PydanticCustomError]:
        if (self.capacity == "reservation") != (self.reservation is not None):
            yield refusal(
                field="reservation",
                found="none" if self.reservation is None else f"a reservation with capacity {self.capacity}",
                wanted="a reservation exactly when capacity is reservation",
            )
        if self.compute_class is not None and self.capacity != "on-demand":
            yield refusal(
                field="compute_class",
                found=f"a compute class with capacity {self.capacity}",
                wanted="capacity left out, since the class decides it",
            )
        if self.priority is not None and self.queue is None:
            yield refusal(
                field="priority",
                found="a priority without a queue",
                wanted="spec.schedule.queue, since this priority is Kueue's",
                hint="without Kueue use priority_class",
            )
        if self.capacity == "queued" and self.queue is None:
            yield refusal(
                field="queue",
                found="no queue",
                wanted="the LocalQueue whose admission check asks for the nodes, since capacity is queued",
                hint="flex-start gets its nodes without Kueue",
            )
        low, high = _FLEX_RUN_SECONDS if self.capacity == "flex-start" else _MAX_RUN_SECONDS
        if self.max_run_seconds is not None and not low <= self.max_run_seconds <= high:
            yield refusal(
                field="max_run_seconds",
                found=str(self.max_run_seconds),
                wanted=f"{low} to {high} seconds with capacity {self.capacity}",
            )
