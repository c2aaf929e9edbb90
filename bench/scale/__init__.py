"""Cost as the work grows: files in the index, rows in the order, hosts, places to restart from, bytes streamed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.report import table


@dataclass(frozen=True)
class Point:
    """One figure.

    Attributes:
        panel: Which question it answers.
        curve: Which of the answer's lines it belongs to.
        size: Size of the work.
        cost: What it took, in the curve's unit.
        load: Load average of the machine before.
        how: ``measured``, or what stands in for machines.
    """

    panel: str
    curve: str
    size: float
    cost: float
    load: float
    how: str = "measured"


def point(panel: str, curve: str, size: float, cost: float, how: str = "measured") -> Point:
    """Return a figure with the load of now, and say it."""
    found = Point(panel, curve, size, cost, round(os.getloadavg()[0], 2), how)
    sys.stderr.write(f"{panel}: {curve}, {size:g}: {cost:.4g} ({how})\n")
    return found


def main(results: Path, parts: Sequence[str] | None = None) -> int:
    """Measure everything, or only some parts, and write table, JSON and plot.

    Args:
        results: Where these go.
        parts: ``files``, ``order``, ``memory``; default: all of them.
    """
    from bench import plot
    from bench.scale import files, memory, order

    facts = machine.describe()
    every = {"files": files.measure, "order": order.measure, "memory": memory.measure}
    points = [each for name, measure in every.items() if not parts or name in parts for each in measure()]
    results.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"machine": facts, "points": [asdict(each) for each in points]}
    (results / "scale.json").write_text(json.dumps(content, indent=1) + "\n")
    text = _markdown(facts, points)
    (results / "scale.md").write_text(text)
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for each in points:
        panels.setdefault(each.panel, {}).setdefault(each.curve, []).append((each.size, each.cost))
    plot.curves(panels, results / "scale.png")
    print(text)
    return 0


def _markdown(facts: dict[str, Any], points: list[Point]) -> str:
    loads = [each.load for each in points]
    lines = [
        "# Cost as the work grows",
        "",
        f"{facts['date']}; {facts['processor']}, {facts['cpus']} CPUs, Python {facts['python']}. Load average before a "
        f"figure: {min(loads):.1f} to {max(loads):.1f}.",
    ]
    for panel in dict.fromkeys(each.panel for each in points):
        here = [each for each in points if each.panel == panel]
        curves = list(dict.fromkeys(each.curve for each in here))
        sizes = sorted({each.size for each in here})
        costs = {(each.curve, each.size): f"{each.cost:,.4g}" for each in here}
        rows = [[f"{size:,.0f}", *(costs.get((curve, size), "") for curve in curves)] for size in sizes]
        how = "; ".join(dict.fromkeys(each.how for each in here))
        lines += ["", f"## {panel}", "", how[0].upper() + how[1:] + ".", "", *table(["", *curves], rows)]
    return "\n".join(lines) + "\n"
