"""Results as markdown: one table per text and layout, one of the rest, and what the figures were taken on."""

from __future__ import annotations

from collections.abc import Sequence

from bench.machine import QUIET_LOAD
from bench.results import Line, Results
from bench.summary import Spread, Summary, fill, flatness, median_of, over_imports_bytes

_KINDS = {"raw": "tokenizer alone", "text": "from text", "tokens": "from ids made before"}
_LAYOUTS = {"pad": "padded to [32, 1024]", "pack": "packed into [32, 1024] with segment ids"}


def markdown(results: Results) -> str:
    """Return the whole report."""
    parts = ["# Loaders side by side", *_conditions(results)]
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in results.lines:
        groups.setdefault((line.corpus, line.layout), []).append(line)
    for (corpus, layout), lines in groups.items():
        parts += ["", f"## {corpus}, {_LAYOUTS[layout]}", "", *_speed_table(lines)]
    parts += ["", "## Start, resume, memory, stalls", "", *_side_table(results.lines)]
    parts += [
        "",
        "## Exactness: 4,001 rows in 7 files, 4 hosts, global batch of 32",
        "",
        *_exactness_table(results.lines),
    ]
    failures = [
        f"- {line.contender}, {line.layout}, {line.corpus}: {what}: {why}"
        for line in results.lines
        for what, why in line.failures.items()
    ]
    if failures:
        parts += ["", "## What did not run", "", *failures]
    return "\n".join(parts) + "\n"


def _conditions(results: Results) -> list[str]:
    facts = results.machine
    loads = [run.load for line in results.lines for run in line.runs] or [facts["load_before"]]
    settings = results.settings
    lines = [
        "",
        f"{facts['date']}; {facts['processor']}, {settings['num_cpus']} of {facts['cpus']} CPUs, "
        f"{facts['memory_gib']} GiB; Python {facts['python']}.",
        ", ".join(f"{name} {version}" for name, version in facts["versions"].items()) + ".",
        f"Windows of {settings['window_seconds']:g} s after {settings['warm_up_seconds']:g} s of warm-up, or to the "
        f"end of the data; {settings['repeats']} turns of all contenders, each in a fresh process, the first cold.",
        "",
        f"Load average of the machine before a window: {min(loads):.1f} to {max(loads):.1f}.",
    ]
    if max(loads) > QUIET_LOAD + settings["num_cpus"]:
        lines.append(
            "**Other programs were running: absolute rates are too low and times too long; trust ratios only roughly.**"
        )
    for name, corpus in results.corpora.items():
        lines.append(
            f"- {name}: {corpus['num_documents']:,} documents, {corpus['num_bytes'] / 1e6:.0f} MB, "
            f"{corpus['non_ascii_fraction']:.0%} not pure ASCII, sha256 {corpus['sha256'][:12]}"
        )
    lines += [
        "",
        '"Raw" is `encode_batch_fast` over the same texts in memory, the better of its own Rust threads and of two',
        "Python threads. Ratios are taken inside a turn; median (least to most). A useful token is one that stands for",
        "text in a delivered array.",
    ]
    return lines


def _speed_table(lines: Sequence[Line]) -> list[str]:
    summary = Summary(lines)
    rows = [
        [
            line.contender,
            _KINDS[line.kind],
            _number(median_of(line, lambda run: run.rate / 1e6)),
            _spread(summary.over_raw(line)),
            _spread(summary.over_rust_threads(line)),
            _spread(summary.over_raw_cpu(line)),
            _spread(summary.over_engine(line)),
            "" if line.kind == "raw" else _number(median_of(line, fill), 3),
        ]
        for line in lines
    ]
    head = [
        "contender",
        "kind",
        "M tokens/s",
        "x raw",
        "x raw, Rust threads",
        "x raw per CPU-s",
        "x fast engine",
        "slot fill",
    ]
    return table(head, rows)


def _side_table(lines: Sequence[Line]) -> list[str]:
    main = lines[0].corpus if lines else ""
    rows = []
    for line in lines:
        if line.kind == "raw" or line.corpus != main:
            continue
        resume = [line.resume_seconds[percent] for percent in sorted(line.resume_seconds, key=int)]
        exact = line.resume_is_exact
        rows.append(
            [
                f"{line.contender} ({line.layout})",
                _number(median_of(line, lambda run: run.import_seconds), 1),
                _number(median_of(line, lambda run: run.first_seconds, warm=False), 1),
                _number(median_of(line, lambda run: run.first_seconds, warm=True), 1),
                _number(line.conversion_seconds or None, 0),
                " / ".join(f"{seconds:.2f}" for seconds in resume),
                _number(flatness(resume)),
                ("yes" if all(exact.values()) else "no at " + ", ".join(f"{p} %" for p, ok in exact.items() if not ok))
                if exact
                else "",
                _number(median_of(line, lambda run: over_imports_bytes(run) / 1e6), 0),
                "" if line.slope_bytes_per_epoch is None else f"{line.slope_bytes_per_epoch / 1e6:+.1f}",
                "" if line.stalled_fraction is None else f"{line.stalled_fraction:.1%}",
            ]
        )
    head = [
        "contender",
        "imports, s",
        "first batch cold, s",
        "warm, s",
        "conversion, s",
        "resume at 10 / 50 / 90 %, s",
        "most / least",
        "exact",
        "peak over imports, MB",
        "MB per epoch",
        "stalled",
    ]
    return table(head, rows)


def _exactness_table(lines: Sequence[Line]) -> list[str]:
    rows = []
    for line in lines:
        found = line.exactness
        if found is None:
            continue
        steps = str(found.steps[0]) + " each" if len(set(found.steps)) == 1 else ", ".join(map(str, found.steps))
        rows.append([line.contender, str(found.lost), str(found.repeated), steps, found.order, found.elastic])
    head = [
        "contender",
        "rows lost",
        "repeated",
        "batches of the 4 hosts",
        "global batches at 1, 2, 4 hosts",
        "2 then 4 hosts",
    ]
    return table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a markdown table."""
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in escaped)]


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.least:.2f} to {spread.most:.2f})"


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
