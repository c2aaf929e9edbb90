"""What people see of local workers: a prefix per host, the verdict as a table, progress told once, errors in red."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, TextIO

from tpuworker.spec.wire import EVENT_PREFLIGHT, EVENT_PROGRESS

#: Colours that can be read on dark and light ground, taken in turn by the hosts.
_PALETTE = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_RED, _YELLOW, _GREEN, _BOLD = 31, 33, 32, 1
_SEVERITY_COLORS = {"WARNING": _YELLOW, "ERROR": _RED, "CRITICAL": _RED}
#: Lines of native libraries about their own well-being, many per host, that no one asked for.
_NOISE = re.compile(
    r"\[Gloo\] Rank \d+ is connected"
    r"|sharding_propagation\.cc:\d+\] GSPMD"
    r"|preemption_(notifier|sync_manager)\.cc"
    r"|All log messages before absl::InitializeLog"
)


class Printer:
    """Turns lines of workers into lines for people.

    Args:
        stream: Where they go.
        width: Width of the widest ``slice/host``.
        is_colored: Whether to colour; None: if the stream is a terminal and NO_COLOR is unset.
        is_raw: Leave the workers' JSON as it is.
    """

    def __init__(self, stream: TextIO, width: int, *, is_colored: bool | None = None, is_raw: bool = False) -> None:
        self._stream = stream
        self._width = width
        self._is_colored = stream.isatty() and not os.environ.get("NO_COLOR") if is_colored is None else is_colored
        self._is_raw = is_raw

    def line(self, rank: int, label: str, text: str) -> None:
        """Show one line of a host.

        Args:
            rank: Host rank; what all hosts say alike is shown for rank 0 only.
            label: ``slice/host``.
            text: The line without its end.
        """
        if _NOISE.search(text):
            return
        record = None if self._is_raw else _record(text)
        if record is None:
            self._write(rank, label, text)
        elif record.get("event") == EVENT_PREFLIGHT:
            if rank == 0:
                self._verdict(rank, label, record)
        elif record.get("event") != EVENT_PROGRESS or rank == 0:
            color = _SEVERITY_COLORS.get(str(record.get("severity")))
            message = str(record.get("message", text))
            if record.get("event") == EVENT_PROGRESS:
                message = _progress(record)
            elif record.get("reason") and not message.startswith("host "):
                message = f"{record['reason']}: {message}"
            for part in message.splitlines() or [""]:
                self._write(rank, label, self._paint(part, color))

    def _verdict(self, rank: int, label: str, record: Mapping[str, Any]) -> None:
        verdict = record.get("preflight", {})
        passed = record.get("verdict") == "passed"
        rows = _verdict_rows(verdict)
        width = max(len(name) for name, _ in rows)
        title = f"preflight {record.get('verdict')}"
        self._write(rank, label, self._paint(title, _GREEN if passed else _RED))
        for name, value in rows:
            color = _RED if name == "refused" else None
            self._write(rank, label, f"  {self._paint(f'{name:<{width}}', _BOLD)}  {self._paint(value, color)}")

    def _write(self, rank: int, label: str, text: str) -> None:
        head = f"{label:<{self._width}} | "
        self._stream.write(f"{self._paint(head, _PALETTE[rank % len(_PALETTE)])}{text}\n")
        self._stream.flush()

    def _paint(self, text: str, color: int | None) -> str:
        return f"\x1b[{color}m{text}\x1b[0m" if self._is_colored and color is not None else text


def _record(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "message" in record else None


def _progress(record: Mapping[str, Any]) -> str:
    step, num_steps = record.get("step", 0), record.get("num_steps", 0)
    told = [f"step {step:>{len(str(num_steps))}}/{num_steps}"]
    if isinstance(record.get("loss"), int | float):
        told.append(f"loss {record['loss']:8.4f}")
    for name, unit in (("rows_per_second", "rows/s"), ("tokens_per_second", "tokens/s")):
        if isinstance(record.get(name), int | float):
            told.append(f"{record[name]:>10,.0f} {unit}")
    if "ETA" in str(record.get("message", "")):
        told.append("ETA" + str(record["message"]).rpartition("ETA")[2])
    return "  ".join(told)


def _verdict_rows(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of the table from the verdict's fields, as the worker's own ``Verdict`` names them."""

    def number(name: str) -> str:
        return f"{verdict.get(name, 0):,}"

    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in verdict.get("shapes", {}).items())
    versions = ", ".join(f"{name} {value}" for name, value in verdict.get("versions", {}).items())
    done = f", {number('start_step')} of them done" if verdict.get("start_step") else ""
    rows = [
        ("hosts", f"{number('num_hosts')} in {number('num_slices')} slice(s), {number('num_devices')} devices"),
        ("backend", f"{verdict.get('backend', '')}: {versions}"),
        ("data", f"{number('num_rows')} rows, {number('steps_per_epoch')} steps an epoch"),
        ("steps", f"{number('num_steps')} on every host{done}"),
        ("batch", f"{shapes}; {number('rows_per_host')} rows a host"),
        ("tokens", f"{number('tokens_per_step')} slots a step, {verdict.get('fill', 0):.0%} filled"),
        ("tokenizer", str(verdict.get("engine", ""))),
        (
            "checked",
            f"{number('num_batches')} batches, {number('num_last_batches')} of them the last of the epoch or job",
        ),
        ("compilations", f"{number('num_compiles')} of {number('max_compiles')} allowed"),
        ("global batches", f"{verdict.get('data_hash') or 'none'} (the same for any number of hosts)"),
        ("time", f"{verdict.get('seconds', 0)} s"),
    ]
    rows += [("refused", _fault(fault)) for fault in verdict.get("faults", ())]
    return [row for row in rows if row[1]]


def _fault(fault: Any) -> str:
    if not isinstance(fault, dict):
        return str(fault)
    hint = f"; {fault['hint']}" if fault.get("hint") else ""
    return f"{fault.get('path')}: found {fault.get('found')}; wanted {fault.get('wanted')}{hint}"
