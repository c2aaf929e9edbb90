"""CPU seconds and memory of a process and all its children, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def tree_of(process_id: int) -> list[int]:
    """Return a process and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [process_id]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time of a process tree so far, reaped children included."""
    total = 0
    for member in tree_of(process_id):
        fields = _stat(member)
        if fields is not None:
            total += sum(int(field) for field in fields[11:15])
    return total / _TICKS_PER_SECOND


def pss_bytes(process_id: int) -> int:
    """Return the memory of a process tree, each shared page counted once."""
    return sum(_pss_of(member) for member in tree_of(process_id))


def _pss_of(process_id: int) -> int:
    try:
        text = (_PROC / str(process_id) / "smaps_rollup").read_text()
    except OSError:  # it has ended meanwhile
        return 0
    line = next((line for line in text.splitlines() if line.startswith("Pss:")), "Pss: 0 kB")
    return int(line.split()[1]) * 1024


def _stat(process_id: int) -> list[str] | None:
    """Return the fields after the name: state, parent, ... of which 11 to 14 are CPU ticks, own and of the reaped."""
    try:
        return (_PROC / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
