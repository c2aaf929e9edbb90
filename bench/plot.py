"""Plots: rates of all contenders over raw as bars, and costs against the size of the work as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.results import Results
from bench.summary import Summary

_COLOURS = {"raw": "#9aa0a6", "text": "#8ab4f8", "tokens": "#c58af9"}
_OURS = "#188038"


def rates(results: Results, path: Path) -> None:
    """Draw useful tokens per second over raw, for the first text: one panel per layout, logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    main = [line for line in results.lines if line.corpus == results.lines[0].corpus]
    layouts = [layout for layout in ("pad", "pack") if any(line.layout == layout for line in main)]
    figure, axes = pyplot.subplots(1, len(layouts), figsize=(7 * len(layouts), 6), squeeze=False, layout="constrained")
    for axis, layout in zip(axes[0], layouts, strict=True):
        lines = [line for line in main if line.layout == layout]
        summary = Summary(lines)
        found = [(line, spread) for line in lines if (spread := summary.over_raw(line))]
        found.sort(key=lambda pair: pair[1].median)
        colours = [_OURS if line.contender.startswith("ours") else _COLOURS[line.kind] for line, _ in found]
        bars = axis.barh([line.contender for line, _ in found], [spread.median for _, spread in found], color=colours)
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.margins(x=0.2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title({"pad": "padded", "pack": "packed"}[layout])
        axis.set_xlabel("useful tokens/s over raw encode_batch_fast")
    load = max((run.load for line in results.lines for run in line.runs), default=0.0)
    figure.suptitle(f"{results.lines[0].corpus}, two CPUs; load average up to {load:.1f}", fontsize=10)
    _save(figure, path)


def curves(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], path: Path) -> None:
    """Draw costs against the size of the work, both logarithmic.

    Args:
        panels: Title to curves, each a name with its points (size, cost).
        path: PNG to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    columns = 2
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(12, 4 * rows), squeeze=False, layout="constrained")
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        for name, points in lines.items():
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=name)
        axis.set(xscale="log", yscale="log", title=title)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_axis_off()
    _save(figure, path)


def _save(figure: object, path: Path) -> None:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
