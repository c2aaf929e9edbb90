"""The verdict: what was proved, or what was found instead; as JSON, in few bytes, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tpuworker.errors import Fault


@dataclass(frozen=True)
class Verdict:
    """What preflight found; the same on all hosts.

    Attributes:
        verdict: ``passed``, or ``refused`` with the faults.
        job: Name of the job.
        backend: Accelerator library.
        versions: Of the library, and the kind of device.
        num_slices: Slices.
        num_hosts: Hosts.
        num_devices: Devices of the job.
        shapes: Name of each array to its global shape, [rows, max_length].
        rows_per_host: Rows of a host batch.
        num_batches: Batches that were checked, the epoch's last ones among them.
        num_last_batches: How many of these were the last of the epoch, or of the job.
        num_compiles: Programs the probe was compiled to, over all of them; the largest of all hosts.
        max_compiles: How many were allowed.
        num_rows: Rows of the data.
        steps_per_epoch: Steps of an epoch, equal on all hosts.
        num_steps: Steps of the job.
        start_step: Steps that an earlier run has done.
        tokens_per_step: Token slots of a step, pads included.
        data_hash: Hash of the global batches that were checked; the same for any number of hosts.
        fill: Share of the checked token slots that hold a token.
        facts: What all hosts have in common: fingerprints and versions.
        engine: What makes the tokens, in words.
        seconds: How long the proof took on the slowest host.
        faults: What was found instead; empty if passed.
    """

    verdict: Literal["passed", "refused"]
    job: str
    backend: str
    num_slices: int
    num_hosts: int
    num_devices: int
    versions: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rows_per_host: int = 0
    num_batches: int = 0
    num_last_batches: int = 0
    num_compiles: int = 0
    max_compiles: int = 1
    num_rows: int = 0
    steps_per_epoch: int = 0
    num_steps: int = 0
    start_step: int = 0
    tokens_per_step: int = 0
    data_hash: str = ""
    fill: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    seconds: float = 0.0
    faults: tuple[Fault, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether training may begin."""
        return self.verdict == "passed"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as plain values."""
        return asdict(self)

    def in_short(self) -> dict[str, Any]:
        """Return what a termination message has room for."""
        kept = ("verdict", "num_batches", "num_compiles", "num_steps", "data_hash")
        short = {name: getattr(self, name) for name in kept}
        return short | ({"faults": [fault.describe() for fault in self.faults]} if self.faults else {})

    def sentence(self) -> str:
        """Return the verdict in one line."""
        if not self.passed:
            return "preflight refused: " + "; ".join(fault.describe() for fault in self.faults)
        programs = "1 compilation" if self.num_compiles == 1 else f"{self.num_compiles} compilations"
        return (
            f"preflight passed: {self.num_hosts} hosts agree, {self.num_batches} batches in one shape, {programs}, "
            f"{self.num_steps - self.start_step:,} steps, data {self.data_hash}"
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table, name and value."""
        refused = [("refused", fault.describe()) for fault in self.faults]
        world = f"{self.num_slices} slices, {self.num_hosts} hosts, {self.num_devices} devices"
        if not self.num_steps:  # refused before there was a plan
            return [
                ("verdict", self.verdict.upper()),
                ("job", f"{self.job}, {self.backend}"),
                ("world", world),
                *refused,
            ]
        resumed = f", {self.start_step:,} of them done" if self.start_step else ""
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes.items())
        return [
            ("verdict", self.verdict.upper()),
            ("job", f"{self.job}, {self.backend}"),
            ("world", world),
            ("devices", ", ".join(f"{name} {value}" for name, value in self.versions.items())),
            ("data", f"{self.num_rows:,} rows, {self.steps_per_epoch:,} steps an epoch"),
            ("steps", f"{self.num_steps:,} on every host{resumed}"),
            ("batch", shapes),
            ("a host's share", f"{self.rows_per_host} rows of each batch"),
            ("tokens", f"{self.tokens_per_step:,} slots a step, {self.fill:.0%} filled; {self.engine}"),
            ("checked", f"{self.num_batches} batches, {self.num_last_batches} of them the last of the epoch or job"),
            ("compilations", f"{self.num_compiles} of {self.max_compiles} allowed"),
            ("global batches", f"{self.data_hash} (the same for any number of hosts)"),
            ("time", f"{self.seconds:.1f} s"),
            *refused,
        ]

    def table(self) -> str:
        """Return the verdict as a plain table for people."""
        rows = [(name, value) for name, value in self.rows() if value]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def write(self, path: Path) -> None:
        """Write the verdict as a JSON file; a full or read-only disk is no reason to refuse the job."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.as_dict(), indent=2) + "\n", "utf-8")
        except OSError:
            return
