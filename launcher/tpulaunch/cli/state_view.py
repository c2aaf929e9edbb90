"""A job's state as rows of a table and as plain data."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpulaunch.cluster.explain import Cause
    from tpulaunch.cluster.state import HostState, JobState

#: The first six are ``kubectl get jobset``'s own.
JOB_HEADER = (
    "NAME",
    "TERMINALSTATE",
    "RESTARTS",
    "COMPLETED",
    "SUSPENDED",
    "AGE",
    "SLICES",
    "HOSTS",
    "QUEUE",
    "STEP",
    "REASON",
)
HOST_HEADER = ("HOST", "PHASE", "READY", "RESTARTS", "NODE", "PREFLIGHT", "STEP", "STEPS/S", "EXIT")


def job_row(state: JobState, cause: Cause | None, now: datetime | None) -> tuple[str, ...]:
    """Return a job as one row under :data:`JOB_HEADER`."""
    from tpulaunch.cluster.conditions import Phase
    from tpulaunch.cluster.durations import format_age

    age = format_age((now - state.created).total_seconds()) if now and state.created else ""
    is_suspended = state.phase in (Phase.QUEUED, Phase.SUSPENDED)
    lead = state.lead
    return (
        state.name,
        state.phase.value if state.phase.is_terminal else "",
        _restarts(state),
        "True" if state.phase is Phase.COMPLETED else "",
        "True" if is_suspended else "",
        age,
        f"{state.slices_ready}/{state.num_slices}",
        f"{state.hosts_ready}/{state.num_hosts}",
        state.queue,
        _step(lead.step, lead.num_steps) if lead else "",
        cause.code if cause else state.phase.value,
    )


def _restarts(state: JobState) -> str:
    limit = "" if state.max_restarts is None else f"/{state.max_restarts}"
    free = state.restarts - state.restarts_counted
    return f"{state.restarts_counted}{limit}" + (f"+{free}" if free else "")


def _step(step: int | None, num_steps: int | None) -> str:
    if step is None:
        return ""
    return f"{step}/{num_steps}" if num_steps else str(step)


def host_row(host: HostState, *, is_wide: bool) -> tuple[str, ...]:
    """Return a host as one row under :data:`HOST_HEADER`, with pod, attempt and last words if wide."""
    said = host.progress
    row = (
        host.label,
        host.phase.value,
        "True" if host.is_ready else "",
        str(host.container_restarts),
        host.node,
        said.verdict if said else "",
        _step(said.step, said.num_steps) if said else "",
        f"{said.steps_per_second:.3g}" if said and said.steps_per_second is not None else "",
        "" if host.exit_code is None else str(host.exit_code),
    )
    words = " ".join(said.message.split())[:100] if said else ""
    return (*row, host.pod, str(host.attempt), words) if is_wide else row


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause for people: what, what to do, and the controller's own words."""
    lines = [f"{'Cause' if cause.is_fault else 'State'}:  {cause.cause}", f"To do:  {cause.remedy}"]
    if cause.evidence and cause.evidence not in cause.cause:
        lines.append(f"Seen:   {cause.about}: {cause.evidence}")
    return lines


def as_data(state: JobState, cause: Cause | None) -> dict[str, Any]:
    """Return a state as plain data, with camelCase left to Kubernetes: these are tpulaunch's own names."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value.isoformat() if isinstance(value, datetime) else value

    data = asdict(state)
    data["phase"] = state.phase.value
    for host, shown in zip(state.hosts, data["hosts"], strict=True):
        shown["host"], shown["phase"] = host.label, host.phase.value
    data["cause"] = asdict(cause) if cause else None
    found: dict[str, Any] = plain(data)
    return found
