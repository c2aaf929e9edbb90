"""A page that shows how a run went: loss, rate, stages, tokens, lengths, shuffle; one file, no script, no network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 180, 64, 24
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: #666; } polyline { fill: none; stroke: #1a73e8;
stroke-width: 1.5; } line { stroke: #ddd; } .refused { color: #c5221f; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; } line { stroke: #444; } }
"""
#: What is drawn, by the names of the progress lines.
_CHARTS = (
    ("loss", "Loss", "what the trainer reported"),
    ("tokens_per_second", "Tokens per second", "token slots of the whole job, pads included"),
    ("queue_fill", "Queue fill", "share of the loader's queue that was ready; near 0 means that the devices waited"),
    ("starved_fraction", "Starvation", "share of each interval in which this host's devices waited for data"),
)
#: What is listed, by the names of the progress lines: its heading, and what it says.
_TABLES = {
    "tokens": ("Tokens of this host", "tokenised = delivered + cut + dropped; slots are places, pads included"),
    "lengths": ("Lengths", "tokens of the documents, or parts of one, in the last batch that was looked at"),
    "shuffle": ("Shuffle quality", "an epoch's batches against batches drawn at random: 1, 1, 0.333 and 0 are ideal"),
    "cache": ("Token cache", "entries that this host found, missed, wrote; size_bytes of the whole directory"),
    "bad": ("Bad records of this host", "by reason; the log names file and row"),
}


def page(title: str, facts: Sequence[tuple[str, str]], progress: Sequence[Mapping[str, Any]], end: str) -> str:
    """Return the page.

    Args:
        title: Name of the run.
        facts: Lines of the verdict, name and value.
        progress: Fields of the progress lines, in order; the newest of each kind makes a table.
        end: How the run ended, in a sentence.
    """
    charts = "".join(_chart(name, label, meaning, progress) for name, label, meaning in _CHARTS)
    tables = "".join(_table(name, *said, progress) for name, said in _TABLES.items())
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{_text(title)}</h1>'
        f"<p>{_text(end)}</p><h2>Preflight</h2><table>{rows}</table>{charts}{_stages(progress)}{tables}</html>\n"
    )


def _chart(name: str, label: str, meaning: str, progress: Sequence[Mapping[str, Any]]) -> str:
    points = [(line["step"], line[name]) for line in progress if isinstance(line.get(name), int | float)]
    if not points:
        return ""
    steps, values = [step for step, _ in points], [value for _, value in points]
    low, high = min(*values, 0) if min(values) >= 0 else min(values), max(values)
    first, last = min(steps), max(steps)

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * ((step - first) / (last - first) if last > first else 0.5)

    def y(value: float) -> float:
        return 8 + (_HEIGHT - _BOTTOM - 8) * (1 - ((value - low) / (high - low) if high > low else 0.5))

    line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        for value in sorted({low, (low + high) / 2, high})
    )
    ends = "".join(
        f'<text x="{x(step):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">step {step}</text>'
        for step, anchor in {first: "start", last: "end"}.items()
    )
    return (
        f"<h2>{_text(label)}</h2><p>{_text(meaning)}; last {_short(values[-1])}</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(label)} over steps">{grid}{ends}'
        f'<polyline points="{line}"/></svg>'
    )


def _stages(progress: Sequence[Mapping[str, Any]]) -> str:
    stages = progress[-1].get("stages", {}) if progress else {}
    if not stages:
        return ""
    busiest = max(float(count.get("busy_seconds", 0)) for count in stages.values()) or 1.0
    rows = "".join(
        f'<tr><th>{_text(name)}</th><td class="n">{count.get("rows", 0):,}</td>'
        f'<td class="n">{float(count.get("busy_seconds", 0)):.1f} s</td>'
        f'<td><svg viewBox="0 0 100 10" style="width: 8rem; height: .7rem"><rect width="'
        f'{100 * float(count.get("busy_seconds", 0)) / busiest:.0f}" height="10" fill="#1a73e8"/></svg></td></tr>'
        for name, count in stages.items()
    )
    return (
        "<h2>Stages of the loader</h2><p>The stage that worked longest is where a starving device should look.</p>"
        f"<table><tr><th>stage</th><th>rows</th><th>worked</th></tr>{rows}</table>"
    )


def _table(name: str, heading: str, meaning: str, progress: Sequence[Mapping[str, Any]]) -> str:
    values: Mapping[str, Any] = next((line[name] for line in reversed(progress) if line.get(name)), {})
    rows = "".join(
        f'<tr><th>{_text(key.replace("_", " "))}</th><td class="n">{value:,}</td></tr>' for key, value in values.items()
    )
    return f"<h2>{_text(heading)}</h2><p>{_text(meaning)}</p><table>{rows}</table>" if rows else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _text(value: object) -> str:
    return html.escape(str(value))
