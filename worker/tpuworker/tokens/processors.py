"""How many processors this container may use: affinity and the CPU limit of its control group, whichever is less."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath


def cpu_limit(root: Path = Path("/")) -> int:
    """Return the number of threads worth starting, at least 1.

    A pod with ``limits: {cpu: 4}`` on a host of 240 processors sees all 240 in ``os.cpu_count()``; threads beyond the
    limit are throttled by the scheduler. Read are: the affinity mask (cpusets included), ``cpu.max`` of control groups
    version 2 and ``cpu.cfs_quota_us`` of version 1, in this process' group and in all its parents.

    Args:
        root: Where ``/proc`` and ``/sys/fs/cgroup`` are. Tests give a directory.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quotas = [quota for group in _groups(root) if (quota := _quota(group)) is not None]
    return max(1, math.floor(min([processors, *quotas])))


def _groups(root: Path) -> list[Path]:
    """Directories of the control groups this process is in, parents included."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    base = root / "sys/fs/cgroup"
    groups = [base, base / "cpu", base / "cpu,cpuacct"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 2 has one tree; version 1 has one per set of controllers, usually also linked as "cpu".
        for tree in [base] if not controllers else [base / controllers, base / "cpu"]:
            inside = PurePosixPath(path.lstrip("/"))
            groups += [tree / part for part in (inside, *inside.parents)]
    return list(dict.fromkeys(groups))


def _quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)
