"""Durations as Go and kubectl write them (``90s``, ``10m``, ``1h30m``), and short ages for tables."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Return a Go duration in seconds; ``0`` needs no unit.

    Raises:
        ValueError: The text is no Go duration; the message says what one looks like.
    """
    stripped = text.strip()
    sign, body = (-1.0, stripped[1:]) if stripped.startswith("-") else (1.0, stripped.removeprefix("+"))
    if body == "0":
        return 0.0
    parts = list(_PART.finditer(body))
    if not parts or "".join(part.group() for part in parts) != body:
        hint = f", for example {body}s" if body.isdecimal() else ""
        raise ValueError(f"found {text!r}; wanted a duration such as 90s, 10m or 1h30m{hint}")
    return sign * sum(float(part[1]) * _UNIT_SECONDS[part[2]] for part in parts)


def format_age(seconds: float) -> str:
    """Return an age as kubectl prints it: ``45s``, ``5m12s``, ``3h5m``, ``2d4h``, ``37d``."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86_400, whole // 3600, whole // 60
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if days < 2:
        return f"{hours}h"
    return _pair(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def _pair(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}{second}{second_unit}" if second else f"{first}{first_unit}"
