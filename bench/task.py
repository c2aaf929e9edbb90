"""What one fresh process is asked to do, as a value that travels as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

#: What a process measures; one function of :mod:`bench.child` each.
Measure = Literal["speed", "stall", "save", "resume", "memory", "rows"]
Layout = Literal["pad", "pack"]


@dataclass(frozen=True)
class Task:
    """One contender, one measure, one corpus.

    Attributes:
        contender: Name in :data:`bench.contenders.CONTENDERS`.
        measure: What to find out.
        corpus: Directory of a corpus, with one directory per format in it.
        tokenizer: The corpus' tokenizer.json.
        scratch: Where the contender may keep an index or a cache from one run to the next.
        layout: ``pad``: one document a row, cut at ``length``. ``pack``: several, told apart by segment ids.
        num_rows: Rows of this host's batch.
        length: Tokens of a row.
        seed: Seed of the order.
        epochs: Passes over the corpus.
        rank: This host.
        world: Number of hosts.
        num_threads: Threads the contender may compute with.
        cpus: CPUs the process and its children are kept to; empty for all.
        warm_up_seconds: Time before the window; ends early at a tenth of the corpus.
        window_seconds: Length of the window; ends early with the data.
        position: Batches before the state is taken (``save``, ``rows``), or zero.
        most_batches: Batches after which ``rows`` ends.
        states: Directory for state files.
        restore_from: State file to begin from.
    """

    contender: str
    measure: Measure
    corpus: str
    tokenizer: str
    scratch: str
    layout: Layout = "pad"
    num_rows: int = 32
    length: int = 1024
    seed: int = 7
    epochs: int = 1
    rank: int = 0
    world: int = 1
    num_threads: int = 2
    cpus: tuple[int, ...] = ()
    warm_up_seconds: float = 3.0
    window_seconds: float = 20.0
    position: int = 0
    most_batches: int = 1_000_000
    states: str = ""
    restore_from: str = ""
    options: dict[str, str | int] = field(default_factory=dict)
    """What tells variants of a contender apart: workers, engine, backend."""

    def folder(self, format_name: str) -> Path:
        """Return where the corpus lies in one format."""
        return Path(self.corpus) / format_name

    def files(self, format_name: str, ending: str) -> list[str]:
        """Return the corpus' files in one format, in the order of their names."""
        return [str(path) for path in sorted(self.folder(format_name).glob(f"*{ending}"))]

    def text_option(self, name: str, default: str) -> str:
        """Return an option that is a word."""
        return str(self.options.get(name, default))

    def int_option(self, name: str, default: int) -> int:
        """Return an option that is a number."""
        return int(self.options.get(name, default))

    def with_(self, **changes: Any) -> Task:
        """Return the task with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """Return the task as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task that :meth:`to_json` wrote."""
        return cls(**json.loads(text))
