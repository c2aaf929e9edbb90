"""What each stage of the loader has done so far: plain numbers that a reporter can print."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tpuworker.tokens.cache import CacheCounters

#: In the order in which a row passes them.
STAGES = ("read", "decode", "tokenise", "pack", "transfer")


@dataclass(frozen=True)
class StageCount:
    """One stage, since the loader began.

    Attributes:
        rows: Rows that left it.
        bytes: Bytes that left it.
        tokens: Tokens that left it, where the stage knows them.
        busy_seconds: Time its threads worked, summed over them.
        stall_seconds: Time that it waited for the stage after it to take something.
    """

    rows: int = 0
    bytes: int = 0
    tokens: int = 0
    busy_seconds: float = 0.0
    stall_seconds: float = 0.0


@dataclass(frozen=True)
class LoaderStats:
    """A snapshot of all stages.

    Attributes:
        stages: Stage name to its count.
        queue_fill: Batches that are ready, as a share of the queue; 0 for long means that the loader is the slow part.
        starved_seconds: Time the consumer has waited for a batch.
        batches: Batches delivered.
        bad: Bad records met, by reason.
        cache: What the token cache did, if there is one.
        unlearnable: Sound records met of which no token that reaches the model carries loss.
    """

    stages: dict[str, StageCount]
    queue_fill: float
    starved_seconds: float
    batches: int
    bad: dict[str, int]
    cache: CacheCounters | None = None
    unlearnable: int = 0

    @property
    def cache_counts(self) -> dict[str, int]:
        """What the token cache did, by name; its size only once it was measured, before the first write."""
        return {} if self.cache is None else {k: v for k, v in asdict(self.cache).items() if v or k != "size_bytes"}

    @property
    def slowest(self) -> str:
        """The stage that worked longest: where a starving device should look."""
        return max(self.stages, key=lambda name: self.stages[name].busy_seconds)


class Counters:
    """Adds up counts from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, dict[str, Any]] = {name: asdict(StageCount()) for name in STAGES}

    def add(
        self,
        stage: str,
        *,
        rows: int = 0,
        num_bytes: int = 0,
        tokens: int = 0,
        busy_seconds: float = 0.0,
        stall_seconds: float = 0.0,
    ) -> None:
        """Add to a stage."""
        with self._lock:
            counts = self._stages[stage]
            counts["rows"] += rows
            counts["bytes"] += num_bytes
            counts["tokens"] += tokens
            counts["busy_seconds"] += busy_seconds
            counts["stall_seconds"] += stall_seconds

    @contextmanager
    def busy(self, stage: str) -> Iterator[None]:
        """Count the time of a block as work of a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, busy_seconds=time.perf_counter() - started)

    def snapshot(self) -> dict[str, StageCount]:
        """Return all stages as they stand."""
        with self._lock:
            return {name: StageCount(**counts) for name, counts in self._stages.items()}
