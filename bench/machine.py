"""What a figure was measured on: processor, memory, versions, and how busy the machine was."""

from __future__ import annotations

import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "tpulaunch",
    "tokenizers",
    "fastokens",
    "gigatoken",
    "datasets",
    "grain",
    "mosaicml-streaming",
    "litdata",
    "torch",
    "torch_xla",
    "jax",
    "pyarrow",
    "numpy",
)
#: Above this, figures are those of a shared machine; ratios within a round still hold roughly.
QUIET_LOAD = 0.3


def describe() -> dict[str, Any]:
    """Return the facts of this machine."""
    cpus = sorted(os.sched_getaffinity(0))
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cpus": len(cpus),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "versions": {name: found for name in _LIBRARIES if (found := _version(name))},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
