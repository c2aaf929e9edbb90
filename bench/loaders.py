"""The loader benchmark: all contenders in turns, each measure in a process of its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import exactness, machine
from bench.contenders import CONTENDERS, Contender
from bench.corpus.store import Corpus, CorpusKind, open_corpus
from bench.corpus.tokenizers import Family
from bench.process import Outcome, run
from bench.results import Line, Results, Run
from bench.summary import slope
from bench.task import Layout, Task

#: A process that has not delivered by then never will.
_MOST_SECONDS = 300.0
_MEMORY_EPOCHS = 4
#: Texts by the name in the tables: the corpus, and the family of the tokenizer that was trained on it.
TEXTS: dict[str, tuple[CorpusKind, Family]] = {
    "real text": ("machine", "byte-level"),
    "real text, Llama-2 style": ("machine", "llama-2"),
    "Latin-like": ("latin", "byte-level"),
    "CJK-like": ("ideographs", "cjk"),
}


@dataclass(frozen=True)
class Settings:
    """How the benchmark is run.

    Attributes:
        store: Where corpora and the contenders' own files lie.
        megabytes: Text of the corpus for speed.
        side_megabytes: Text of the corpora for resume and memory, which are read to the end several times.
        warm_up_seconds: Before each window.
        window_seconds: Of each window.
        repeats: Windows of each contender, in turns; the first of them is cold.
        contenders: Names of those that run.
        texts: Names in :data:`TEXTS`; on all but the first only the raw engines and ours are measured.
        measures: ``speed`` and which of ``stall``, ``resume``, ``memory``, ``exactness``.
        num_cpus: CPUs the whole tree is kept to.
    """

    store: Path
    megabytes: int = 400
    side_megabytes: int = 60
    warm_up_seconds: float = 3.0
    window_seconds: float = 20.0
    repeats: int = 5
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    texts: tuple[str, ...] = tuple(TEXTS)
    measures: tuple[str, ...] = ("speed", "stall", "resume", "memory", "exactness")
    num_cpus: int = 2

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs."""
        return tuple(sorted(os.sched_getaffinity(0))[: self.num_cpus])


class LoaderBenchmark:
    """Makes the corpora, runs everything, and hands over the results."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._corpora: dict[str, Corpus] = {}
        self._lines: dict[tuple[str, str, str], Line] = {}

    def run(self) -> Results:
        """Measure everything that the settings ask for."""
        facts = machine.describe()
        for text in self._settings.texts:
            self._speed(text)
        main = self._settings.texts[0]
        for line in [line for line in self._lines.values() if line.corpus == main and line.kind != "raw"]:
            contender = CONTENDERS[line.contender]
            if "stall" in self._settings.measures and line.runs and line.layout == contender.layouts[0]:
                self._stall(line, contender)
            if "resume" in self._settings.measures:
                self._resume(line, contender)
            if "memory" in self._settings.measures and line.layout == contender.layouts[0]:
                self._memory(line, contender)
            if "exactness" in self._settings.measures and line.layout == "pad" and line.kind == "text":
                self._exactness(line, contender)
        facts["load_after"] = round(os.getloadavg()[0], 2)
        corpora = {name: asdict(corpus) | {"directory": ""} for name, corpus in self._corpora.items()}
        settings = asdict(self._settings) | {"store": ""}
        return Results(facts, settings, corpora, list(self._lines.values()))

    def _speed(self, text: str) -> None:
        chosen = list(self._chosen(text))
        is_ready: set[str] = set()
        kind, family = TEXTS[text]
        corpus = self._corpus(kind, self._settings.megabytes, [contender for contender, _ in chosen])
        for turn in range(self._settings.repeats):
            for contender, layout in chosen:
                task = self._task(contender, corpus, layout, family).with_(seed=7 + turn)
                line = self._line(contender, text, layout, corpus)
                if task.scratch not in is_ready:
                    shutil.rmtree(task.scratch, ignore_errors=True)
                    is_ready.add(task.scratch)
                    if contender.is_prepared:
                        line.conversion_seconds = self._prepare(task)
                outcome = self._run(task)
                if outcome.failure or "speed" not in outcome.events:
                    line.failures["speed"] = outcome.failure or "no report"
                else:
                    line.runs.append(_run_of(turn, outcome))
                _say(f"{text}, {layout}: {contender.name}, turn {turn}: {_shown(line)}")

    def _prepare(self, task: Task) -> float:
        """Let a contender go through the corpus once and return the seconds it took."""
        done = _run_apart(task.with_(measure="memory"), 10 * _MOST_SECONDS)
        return float(done.get("done", "seconds") or 0.0)

    def _chosen(self, text: str) -> Iterable[tuple[Contender, Layout]]:
        for layout in ("pad", "pack"):
            for name in self._settings.contenders:
                contender = CONTENDERS[name]
                is_peer = contender.module not in {"raw_reference", "raw_fast", "ours"}
                is_main = text == self._settings.texts[0]
                if layout in contender.layouts and (is_main or not (is_peer or "backend" in contender.options)):
                    yield contender, layout

    def _stall(self, line: Line, contender: Contender) -> None:
        """Let the consumer be slower than the loader and see how long it waits all the same."""
        corpus = self._corpus(TEXTS[line.corpus][0], self._settings.megabytes, [contender])
        outcome = self._run(self._task(contender, corpus, "pad").with_(measure="stall"))
        if outcome.failure:
            line.failures["stall"] = outcome.failure
        elif outcome.get("stall", "batches"):
            line.stalled_fraction = outcome.get("stall", "waited") / outcome.get("stall", "wall")

    def _resume(self, line: Line, contender: Contender) -> None:
        corpus = self._side(line, contender)
        layout: Layout = "pack" if line.layout == "pack" else "pad"
        task = self._task(contender, corpus, layout)
        states = Path(task.scratch) / "states"
        shutil.rmtree(states, ignore_errors=True)
        states.mkdir(parents=True)
        saved = self._run(task.with_(measure="save", states=str(states)))
        following = saved.get("saved", "following") or {}
        if saved.failure:
            line.failures["resume"] = saved.failure
        for percent, digests in following.items():
            resumed = self._run(task.with_(measure="resume", restore_from=str(states / f"{percent}.pickle")))
            if resumed.failure:
                line.failures[f"resume at {percent} %"] = resumed.failure
                continue
            line.resume_seconds[percent] = resumed.get("resumed", "wall") + resumed.get("opened", "wall")
            line.resume_is_exact[percent] = resumed.get("resumed", "digests") == digests
        _say(f"resume {line.contender}: {line.resume_seconds} {line.resume_is_exact} {line.failures}")

    def _memory(self, line: Line, contender: Contender) -> None:
        corpus = self._side(line, contender)
        layout: Layout = "pack" if line.layout == "pack" else "pad"
        outcome = self._run(self._task(contender, corpus, layout).with_(measure="memory", epochs=_MEMORY_EPOCHS))
        if outcome.failure:
            line.failures["memory"] = outcome.failure
        if len(outcome.epoch_bytes) > 2:
            line.slope_bytes_per_epoch = slope(outcome.epoch_bytes[1:])
        _say(f"memory {line.contender}: {outcome.epoch_bytes} {outcome.failure}")

    def _exactness(self, line: Line, contender: Contender) -> None:
        corpus = self._corpus("numbered", 0, [contender])
        task = self._task(contender, corpus, "pad")
        shutil.rmtree(task.scratch, ignore_errors=True)
        found = exactness.measure(task, has_state="datasets reader" not in contender.name)
        if isinstance(found, str):
            line.failures["exactness"] = found
        else:
            line.exactness = found
        _say(f"exactness {line.contender}: {found}")

    def _side(self, line: Line, contender: Contender) -> Corpus:
        return self._corpus(TEXTS[line.corpus][0], self._settings.side_megabytes, [contender])

    def _corpus(self, kind: CorpusKind, megabytes: int, contenders: Iterable[Contender]) -> Corpus:
        name = f"{kind}-{megabytes}"
        if name not in self._corpora:
            _say(f"corpus {name}")
            self._corpora[name] = open_corpus(self._settings.store, kind, megabytes * 1_000_000)
            self._corpora[name].tokenizer()
        for format_name in {each for contender in contenders for each in contender.formats} - {"parquet"}:
            self._corpora[name].convert(format_name)
        return self._corpora[name]

    def _task(self, contender: Contender, corpus: Corpus, layout: Layout, family: Family | None = None) -> Task:
        slug = "".join(sign if sign.isalnum() else "-" for sign in contender.name)
        return Task(
            contender=contender.name,
            measure="speed",
            corpus=corpus.directory,
            tokenizer=corpus.tokenizer(family),
            scratch=str(
                self._settings.store / "scratch" / slug / f"{Path(corpus.directory).name}-{family or ''}-{layout}"
            ),
            layout=layout,
            num_threads=len(self._settings.cpus),
            cpus=self._settings.cpus,
            warm_up_seconds=self._settings.warm_up_seconds,
            window_seconds=self._settings.window_seconds,
            options=contender.options,
        )

    def _line(self, contender: Contender, text: str, layout: Layout, corpus: Corpus) -> Line:
        line = Line(contender.name, contender.kind, layout, text)
        if line.key not in self._lines:
            formats = set(contender.formats) - {"parquet"}
            line.conversion_seconds = sum(corpus.convert(format_name) for format_name in formats)
            self._lines[line.key] = line
        return self._lines[line.key]

    def _run(self, task: Task) -> Outcome:
        return _run_apart(task, _MOST_SECONDS + task.window_seconds)


def _run_apart(task: Task, most_seconds: float) -> Outcome:
    """Run a task with a home and a place for temporary files of its own; what libraries leave there goes with it.

    The place has a short name: sockets between a loader and its workers are made there, and theirs may have 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as temporary:
        environment = {"HF_HOME": str(Path(task.scratch) / "huggingface"), "TMPDIR": temporary}
        return run(task, most_seconds=most_seconds, environment=environment)


def _run_of(turn: int, outcome: Outcome) -> Run:
    speed = outcome.events["speed"]
    imported = outcome.get("imported", "seconds")
    return Run(
        round=turn,
        wall_seconds=speed["wall"],
        cpu_seconds=speed["cpu"],
        tokens=speed["tokens"],
        slots=speed["slots"],
        import_seconds=imported,
        first_seconds=outcome.get("first", "seconds") - imported,
        base_bytes=outcome.base_bytes,
        peak_bytes=outcome.peak_bytes,
        load=round(outcome.load, 2),
    )


def _shown(line: Line) -> str:
    return f"{line.runs[-1].rate / 1e6:.2f} M tokens/s" if line.runs else f"failed: {line.failures}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
