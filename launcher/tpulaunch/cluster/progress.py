"""What the worker says of itself: verdict, step, rate and last words, from log lines and the termination message."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tpulaunch.cluster.objects import Object, dig
from tpuworker.spec.wire import CONTAINER


@dataclass(frozen=True)
class Progress:
    """What one host has said last.

    Attributes:
        verdict: Verdict of preflight, ``passed`` or ``refused``; empty before it.
        step: Last step that was reported; None before the first.
        num_steps: Steps of the whole job, if said.
        steps_per_second: Rate that came with it.
        message: The worker's last words: what failed, in its own sentence.
        reason: Class of the failure, as one word.
        failed_host: ``slice/host`` of the host whose failure it is, where that is another one.
    """

    verdict: str = ""
    step: int | None = None
    num_steps: int | None = None
    steps_per_second: float | None = None
    message: str = ""
    reason: str = ""
    failed_host: str = ""


def read_records(lines: Iterable[str]) -> Progress:
    """Return the progress that structured log lines tell, the last word on each subject; other lines are skipped."""
    progress = Progress()
    for line in lines:
        if (record := _record(line)) is not None:
            progress = _advance(progress, record)
    return progress


def read_termination(pod: Object) -> Progress | None:
    """Return what the worker's container left in its termination message, or None if it left nothing."""
    text = dig(terminated_state(pod), "message", default="")
    lines = text.strip().splitlines()
    if not lines:
        return None
    told = read_records(lines)  # the worker's own record, or the end of its log where it could not write one
    return told if told != Progress() else Progress(message=lines[-1].strip())


def terminated_state(pod: Object, container: str = CONTAINER) -> Object:
    """Return the ended state of a container (the present one, else the one before), or an empty dict."""
    statuses = dig(pod, "status", "containerStatuses", default=[])
    status = next((s for s in statuses if s.get("name") == container), statuses[0] if statuses else {})
    found: Object = dig(status, "state", "terminated") or dig(status, "lastState", "terminated") or {}
    return found


def _record(text: str) -> dict[str, Any] | None:
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    try:
        record = json.loads(stripped)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _advance(progress: Progress, record: dict[str, Any]) -> Progress:
    verdict = dig(record, "preflight", "verdict") or record.get("verdict")
    step, num_steps, rate = record.get("step"), record.get("num_steps"), record.get("steps_per_second")
    is_failure = str(record.get("severity", "")) in ("ERROR", "CRITICAL") or bool(record.get("reason"))
    return replace(
        progress,
        verdict=str(verdict) if isinstance(verdict, str) else progress.verdict,
        step=step if isinstance(step, int) else progress.step,
        num_steps=num_steps if isinstance(num_steps, int) else progress.num_steps,
        steps_per_second=float(rate) if isinstance(rate, int | float) else progress.steps_per_second,
        message=str(record.get("message") or progress.message) if is_failure else progress.message,
        reason=str(record.get("reason") or progress.reason) if is_failure else progress.reason,
        failed_host=str(record.get("failed_host") or progress.failed_host) if is_failure else progress.failed_host,
    )
