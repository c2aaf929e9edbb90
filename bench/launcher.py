"""The launcher beside what it is compared with: start-up against Typer alone, submit and list against kubectl."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import machine
from bench.report import table

_PAIRS = 15
_CLUSTER_PAIRS = 5
_JOBS = 1_000
_NAMESPACE = "tpulaunch-bench"
_SPEC = """\
apiVersion: tpulaunch.dev/v1alpha1
kind: TPUJob
metadata: {{name: bench-{number:04d}}}
spec:
  slice: {{generation: v5e, topology: 4x4, count: 2}}
  worker: {{image: "registry.example/tpuworker@sha256:{digest}", backend: jax}}
  data:
    sources: [{{files: "gs://corpus/part-*.parquet"}}]
    tokenizer: {{path: gpt2, revision: "0000000"}}
    max_length: 2048
    global_batch_size: 512
  train: {{entrypoint: my_project.train.main, steps: {steps}}}
  checkpoint: {{dir: "gs://runs/bench-{number:04d}"}}
"""


@dataclass(frozen=True)
class Pair:
    """Two things done in turns.

    Attributes:
        what: The question.
        ours: What we did, and the other side.
        theirs: The other side.
        our_seconds: Median.
        their_seconds: Median.
        ratio: Median of ours over theirs, turn by turn.
        difference_seconds: Median of ours less theirs, turn by turn.
        load: Load average before.
    """

    what: str
    ours: str
    theirs: str
    our_seconds: float
    their_seconds: float
    ratio: float
    difference_seconds: float
    load: float


def main(results: Path) -> int:
    """Measure, and write table and JSON."""
    facts = machine.describe()
    pairs = [_startup()]
    render_seconds = _render_seconds()
    why_no_cluster = ""
    kubectl = shutil.which("kubectl")
    if not os.environ.get("KUBECONFIG"):
        why_no_cluster = "KUBECONFIG names no cluster (python -m tests.cluster up starts one)"
    elif not kubectl:
        why_no_cluster = "kubectl is not installed"
    else:
        pairs += list(_on_cluster(kubectl))
    results.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "pairs": [asdict(pair) for pair in pairs], "render_seconds_a_job": render_seconds}
    (results / "launcher.json").write_text(json.dumps(content, indent=1) + "\n")
    rows = [
        [
            pair.what,
            f"{pair.ours}: {pair.our_seconds:.3f} s",
            f"{pair.theirs}: {pair.their_seconds:.3f} s",
            f"{pair.ratio:.2f}",
            f"{pair.difference_seconds * 1e3:+.0f} ms",
            f"{pair.load:.1f}",
        ]
        for pair in pairs
    ]
    lines = [
        "# The launcher",
        "",
        f"{facts['date']}; {facts['processor']}, {facts['cpus']} CPUs, Python {facts['python']}.",
        "",
        *table(["what", "ours", "beside", "ratio", "difference", "load"], rows),
        "",
        f"Read, plan, render and check {_JOBS:,} jobs in one process: {render_seconds * 1e3:.1f} ms a job.",
    ]
    if why_no_cluster:
        lines += ["", f"Submit and list were not measured: {why_no_cluster}."]
    text = "\n".join(lines) + "\n"
    (results / "launcher.md").write_text(text)
    print(text)
    return 0


def _startup() -> Pair:
    program = str(Path(sys.executable).parent / "tpulaunch")
    return _in_turns(
        "start-up",
        ("tpulaunch --help", lambda _: _call([program, "--help"])),
        ('python -c "import typer"', lambda _: _call([sys.executable, "-c", "import typer"])),
        _PAIRS,
    )


def _render_seconds() -> float:
    from tpulaunch.check import check
    from tpulaunch.plan import make_plan
    from tpulaunch.render import render
    from tpuworker.spec import load_job

    started = time.perf_counter()
    for number in range(_JOBS):
        text = spec_text(number)
        plan = make_plan(load_job(text), text)
        problems = check(render(plan), plan)
        if problems:
            raise RuntimeError(f"job {number}: {problems[0]}")
    return (time.perf_counter() - started) / _JOBS


def spec_text(number: int, steps: int = 1_000) -> str:
    """Return the spec of one job of many."""
    return _SPEC.format(number=number, digest=f"{number:064x}", steps=steps)


def _on_cluster(kubectl: str) -> Iterator[Pair]:
    program = str(Path(sys.executable).parent / "tpulaunch")
    _call([kubectl, "create", "namespace", _NAMESPACE])
    try:
        with tempfile.TemporaryDirectory() as directory:
            yield _submit(program, kubectl, Path(directory))
            _call([kubectl, "apply", "--server-side", "-n", _NAMESPACE, "-f", str(_many(program, Path(directory)))])
        yield _in_turns(
            f"list {_JOBS:,} jobs",
            ("tpulaunch list", lambda _: _call([program, "list", "-n", _NAMESPACE])),
            ("kubectl get jobsets", lambda _: _call([kubectl, "get", "jobsets", "-n", _NAMESPACE])),
            _CLUSTER_PAIRS,
        )
    finally:
        _call([kubectl, "delete", "namespace", _NAMESPACE, "--wait=false"])


def _submit(program: str, kubectl: str, directory: Path) -> Pair:
    """Create a job anew in each turn, suspended by nothing but the lack of machines, by either program."""

    def ours(turn: int) -> None:
        path = directory / f"ours-{turn}.yaml"
        path.write_text(spec_text(8_000 + turn))
        _call([program, "submit", "-n", _NAMESPACE, str(path)])

    def theirs(turn: int) -> None:
        path = directory / f"theirs-{turn}.yaml"
        path.write_text(_rendered(program, directory, 9_000 + turn))
        started = time.perf_counter()
        _call([kubectl, "apply", "--server-side", "-n", _NAMESPACE, "-f", str(path)])
        theirs_seconds.append(time.perf_counter() - started)

    theirs_seconds: list[float] = []
    return _in_turns(
        "submit", ("tpulaunch submit", ours), ("kubectl apply --server-side", theirs), _CLUSTER_PAIRS, theirs_seconds
    )


def _many(program: str, directory: Path) -> Path:
    """Write many jobs as one file: one of them is rendered, the others differ by name."""
    text = _rendered(program, directory, 0).replace("suspend: false", "suspend: true")
    path = directory / "many.yaml"
    path.write_text("\n---\n".join(text.replace("bench-0000", f"bench-{number:04d}") for number in range(_JOBS)))
    return path


def _rendered(program: str, directory: Path, number: int) -> str:
    path = directory / f"spec-{number}.yaml"
    path.write_text(spec_text(number))
    command = [program, "render", "-n", _NAMESPACE, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _in_turns(
    what: str,
    ours: tuple[str, Callable[[int], object]],
    theirs: tuple[str, Callable[[int], object]],
    turns: int,
    their_own_seconds: list[float] | None = None,
) -> Pair:
    """Do both in turns after one unmeasured turn; a side that has to prepare something reports its own seconds."""
    load = os.getloadavg()[0]
    pairs: list[tuple[float, float]] = []
    for turn in range(turns + 1):
        seconds = [_timed(ours[1], turn), _timed(theirs[1], turn)]
        if their_own_seconds:
            seconds[1] = their_own_seconds[-1]
        if turn:
            pairs.append((seconds[0], seconds[1]))
    return Pair(
        what,
        ours[0],
        theirs[0],
        statistics.median(mine for mine, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(mine / other for mine, other in pairs),
        statistics.median(mine - other for mine, other in pairs),
        round(load, 2),
    )


def _timed(action: Callable[[int], object], turn: int) -> float:
    started = time.perf_counter()
    action(turn)
    return time.perf_counter() - started


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
