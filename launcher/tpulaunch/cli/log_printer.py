"""How log lines look: host before each, in its colour, the worker's structured lines made readable for people."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from tpulaunch.cli.output import use_color

if TYPE_CHECKING:
    from tpulaunch.cluster.logs import LogLine, Notice

#: Colours that can be read on dark and light ground, taken in turn by the hosts.
_PALETTE = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_SEVERITY_COLORS = {"WARNING": 33, "ERROR": 31, "CRITICAL": 31}


class Color(StrEnum):
    """``--color``."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class LogPrinter:
    """Writes lines to stdout and notices to stderr.

    Args:
        width: Width of the widest ``slice/host``.
        color: Whether to colour.
        raw: Whether to leave structured lines as they are; None: yes, unless stdout is a terminal.
        stamps: Whether to show when each line was written.
        prefix: Whether to write the host before each line.
    """

    def __init__(
        self,
        width: int,
        *,
        color: Color = Color.AUTO,
        raw: bool | None = None,
        stamps: bool = False,
        prefix: bool = True,
    ) -> None:
        self._width = width
        self._is_colored = color is Color.ALWAYS or (color is Color.AUTO and use_color(sys.stdout))
        self._is_raw = not sys.stdout.isatty() if raw is None else raw
        self._has_stamps = stamps
        self._has_prefix = prefix

    def take(self, item: LogLine | Notice) -> None:
        """Write a line, or a notice."""
        from tpulaunch.cluster.logs import LogLine

        if not isinstance(item, LogLine):
            sys.stderr.write(f"-- {item.text}\n")
            sys.stderr.flush()
            return
        head = self._head(item)
        parts = item.line.parts if self._is_raw else _readable(item.line.parts, colored=self._is_colored)
        sys.stdout.write("".join(f"{head}{part}\n" for part in parts))
        sys.stdout.flush()

    def _head(self, item: LogLine) -> str:
        head = ""
        if self._has_prefix:
            head = f"{item.source.label:<{self._width}} | "
            if self._is_colored:
                head = f"\x1b[{_PALETTE[item.source.rank % len(_PALETTE)]}m{head}\x1b[0m"
        if self._has_stamps and item.line.stamp_ns is not None:
            head += f"{_stamp(item.line.stamp_ns)} "
        return head


def _stamp(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z"


def _readable(parts: list[str], *, colored: bool) -> list[str]:
    return [line for part in parts for line in _message(part, colored=colored)]


def _message(part: str, *, colored: bool) -> list[str]:
    """Return the message of a structured line (severity before it where it matters), or the line as it is."""
    if not part.startswith("{"):
        return [part]
    try:
        record = json.loads(part)
        severity, message = str(record["severity"]), str(record["message"])
    except (ValueError, KeyError, TypeError):
        return [part]
    if severity in _SEVERITY_COLORS:
        word = f"\x1b[{_SEVERITY_COLORS[severity]}m{severity}\x1b[0m" if colored else severity
        message = f"{word} {message}"
    return message.splitlines() or [""]
