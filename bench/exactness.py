"""Runs a contender as one, two and four hosts over numbered rows, and counts what came, where, and in which order."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from bench.corpus.synthetic import NUMBERED_ROWS
from bench.process import Outcome, run_together
from bench.results import Exactness
from bench.task import Task

#: Rows of a global batch; hosts divide it.
GLOBAL_ROWS = 32
_WORLDS = (1, 2, 4)
_ROW_TOKENS = 64
#: Global batches before the state is taken that another number of hosts goes on from.
_POSITION = 40
_MOST_SECONDS = 240.0

#: One host's batches: the numbers of the rows in each.
Steps = list[list[int]]


def measure(task: Task, *, has_state: bool) -> Exactness | str:
    """Return what a contender does with 4,001 rows in seven files, or why it cannot be said.

    Args:
        task: Contender and numbered corpus; size, hosts and places are set here.
        has_state: Whether it is tried to go on with another number of hosts.
    """
    hosts_of: dict[int, list[Steps]] = {}
    states = Path(task.scratch) / "states"
    states.mkdir(parents=True, exist_ok=True)
    for world in _WORLDS:
        position = _POSITION if world == 2 and has_state else 0
        outcomes = _run(task, world, position, ["" for _ in range(world)])
        failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
        if failure:
            return f"at {world} hosts: {failure}"
        hosts_of[world] = [outcome.get("rows", "steps") for outcome in outcomes]
    lost, repeated = coverage([row for host in hosts_of[4] for step in host for row in step])
    return Exactness(
        lost=lost,
        repeated=repeated,
        steps=tuple(len(host) for host in hosts_of[4]),
        order=same_batches([global_batches(hosts) for hosts in hosts_of.values()]),
        elastic=_elastic(task, hosts_of[2], states) if has_state else "no state",
    )


def coverage(rows: Sequence[int]) -> tuple[int, int]:
    """Return rows lost, beyond the remainder of one global batch, and rows that came again."""
    whole = sum(NUMBERED_ROWS) // GLOBAL_ROWS * GLOBAL_ROWS
    distinct = len(set(rows))
    return max(0, whole - distinct), len(rows) - distinct


def global_batches(hosts: Sequence[Steps]) -> Steps:
    """Return the rows of each step over all hosts, host after host, for the steps that all of them have."""
    return [[row for host in step for row in host] for step in zip(*hosts, strict=False)]


def same_batches(runs: Sequence[Steps]) -> str:
    """Say whether runs over different numbers of hosts have the same global batches."""
    first = runs[0]
    if all(run == first for run in runs):
        return "same order"
    sets = [[frozenset(step) for step in run] for run in runs]
    return "same sets" if all(run == sets[0] for run in sets) else "no"


def _elastic(task: Task, before: list[Steps], states: Path) -> str:
    paths = [str(states / f"rank-{rank % 2}.pickle") for rank in range(4)]
    if not all(Path(path).exists() for path in paths):
        return "no state"
    outcomes = _run(task, 4, 0, paths)
    failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
    if failure:
        return f"refused: {failure[:80]}"
    rows = [row for host in before for step in host[:_POSITION] for row in step]
    rows += [row for outcome in outcomes for step in outcome.get("rows", "steps") for row in step]
    lost, repeated = coverage(rows)
    return "exact" if lost == repeated == 0 else f"{lost} lost, {repeated} repeated"


def _run(task: Task, world: int, position: int, states: Sequence[str]) -> list[Outcome]:
    tasks = [
        task.with_(
            measure="rows",
            num_rows=GLOBAL_ROWS // world,
            length=_ROW_TOKENS,
            rank=rank,
            world=world,
            position=position,
            states=str(Path(task.scratch) / "states"),
            restore_from=state,
            # A loader that repeats for ever would never end.
            most_batches=3 * sum(NUMBERED_ROWS) // GLOBAL_ROWS,
        )
        for rank, state in enumerate(states)
    ]
    port = _free_port()
    environments = [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(world)
    ]
    return run_together(tasks, most_seconds=_MOST_SECONDS, environments=environments)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
