"""What was measured, as values that go into the JSON and come back from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """One window of one fresh process.

    Attributes:
        round: Turn it was measured in; ratios are taken inside a round.
        wall_seconds: Length of the window.
        cpu_seconds: CPU time of the whole tree in it.
        tokens: Useful tokens delivered in it.
        slots: Positions delivered in it.
        import_seconds: From the start of the process until its libraries were there.
        first_seconds: From then to the first batch.
        base_bytes: Memory after the imports.
        peak_bytes: Most memory.
        load: Load average of the machine before it.
    """

    round: int
    wall_seconds: float
    cpu_seconds: float
    tokens: int
    slots: int
    import_seconds: float
    first_seconds: float
    base_bytes: int
    peak_bytes: int
    load: float

    @property
    def rate(self) -> float:
        """Useful tokens per second."""
        return self.tokens / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def cpu_rate(self) -> float:
        """Useful tokens per CPU-second."""
        return self.tokens / self.cpu_seconds if self.cpu_seconds else 0.0


@dataclass(frozen=True)
class Exactness:
    """Whether every row comes once, on every host as often, in one order.

    Attributes:
        lost: Rows of an epoch that no host delivered, beyond the remainder of one global batch, at four hosts.
        repeated: Deliveries of a row that had come before, at four hosts.
        steps: Batches of each of the four hosts.
        order: ``same order``, ``same sets`` or ``no``: the global batches at one, two and four hosts.
        elastic: What became of an epoch that two hosts began and four ended: lost and repeated rows, or its refusal.
    """

    lost: int
    repeated: int
    steps: tuple[int, ...]
    order: str
    elastic: str


@dataclass
class Line:
    """Everything measured of one contender in one layout."""

    contender: str
    kind: str
    layout: str
    corpus: str
    conversion_seconds: float = 0.0
    runs: list[Run] = field(default_factory=list)
    stalled_fraction: float | None = None
    resume_seconds: dict[str, float] = field(default_factory=dict)
    resume_is_exact: dict[str, bool] = field(default_factory=dict)
    slope_bytes_per_epoch: float | None = None
    exactness: Exactness | None = None
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What no other line has."""
        return (self.corpus, self.layout, self.contender)


@dataclass
class Results:
    """One run of the benchmark.

    Attributes:
        machine: What it ran on, versions and load included.
        settings: How it was run.
        corpora: Facts of each corpus by name.
        lines: What was measured.
    """

    machine: dict[str, Any]
    settings: dict[str, Any]
    corpora: dict[str, dict[str, Any]]
    lines: list[Line]

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_results(path: Path) -> Results:
    """Return what :meth:`Results.write` wrote."""
    content = json.loads(path.read_text())
    lines = []
    for line in content["lines"]:
        runs = [Run(**run) for run in line.pop("runs")]
        exactness = line.pop("exactness")
        if exactness:
            exactness = Exactness(**{**exactness, "steps": tuple(exactness["steps"])})
        lines.append(Line(**line, runs=runs, exactness=exactness))
    return Results(content["machine"], content["settings"], content["corpora"], lines)
