"""Which engine does the work of a job: tried on this host, agreed on by all hosts, then put to work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpuworker.errors import Fault, SpecError
from tpuworker.spec.data import TokenizerSpec
from tpuworker.tokens.engine import Engine, EngineRefusal
from tpuworker.tokens.engines import FAST, EngineName, load_engine
from tpuworker.tokens.processors import cpu_limit
from tpuworker.tokens.proven import ProvenEngine, mismatch_error
from tpuworker.tokens.shapes import refusal_of
from tpuworker.tokens.tokenizer import Tokenizer
from tpuworker.tokens.trial import Effort, try_everything, try_samples
from tpuworker.tokens.verdict import Mismatch, Verdict, VerdictFile, reference_verdict

#: What is tried of the user's own texts.
SAMPLE_TEXTS = 2000
SAMPLE_BYTES = 5_000_000
#: The same when the engine has passed all other trials on this kind of processor before: a start should be quick.
SAMPLE_BYTES_AGAIN = 1_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trials:
    """How engines are tried.

    Attributes:
        seed: Of the random texts; the job's seed.
        directory: Where findings are kept; None keeps none.
        num_threads: Threads of an engine. Default: the container's CPU limit.
        effort: How much is tried.
    """

    seed: int = 0
    directory: Path | None = None
    num_threads: int | None = None
    effort: Effort = field(default_factory=Effort)

    @property
    def threads(self) -> int:
        """Threads of an engine."""
        return self.num_threads or cpu_limit()


def judge_engines(
    spec: TokenizerSpec, tokenizer: Tokenizer, samples: Sequence[str], trials: Trials | None = None
) -> Verdict:
    """Try engines on this host and return which one may work here.

    With ``engine: auto`` that is the first of fastokens and gigatoken that can read the file, has it on the list of
    shapes it is trusted with, and makes the reference's ids of every text tried; else the reference.

    Args:
        spec: Which engine was asked for.
        tokenizer: The job's tokenizer.
        samples: Texts of the user's data as the engine will get them; the first ``SAMPLE_TEXTS`` are tried.
        trials: How to try.

    Raises:
        SpecError: An engine was asked for by name that cannot read the file, is not trusted with it, or is missing.
        TokenizerMismatchError: An engine was asked for by name and makes other ids.
    """
    if spec.engine == "reference":
        return reference_verdict(tokenizer)
    trials = trials or Trials()
    names = FAST if spec.engine == "auto" else (spec.engine,)
    reasons: list[str] = []
    for name in names:
        outcome = _judge(name, tokenizer, samples, trials, tuple(reasons))
        if isinstance(outcome, Verdict):
            return outcome
        if isinstance(outcome, _Rejected) and spec.engine != "auto":
            raise mismatch_error(outcome.verdict, outcome.mismatch)
        reason = outcome if isinstance(outcome, str) else f"{name}: {outcome.mismatch.describe()}"
        if spec.engine != "auto":
            raise SpecError(
                [
                    Fault(
                        path="spec.data.tokenizer.engine",
                        found=f"{name}: {reason}",
                        wanted="an engine for this tokenizer",
                        hint="write engine: auto",
                    )
                ]
            )
        _log.info("tokenizer engine %s is not used: %s", name, reason)
        reasons.append(reason)
    return reference_verdict(tokenizer, reasons)


def make_engine(
    verdict: Verdict,
    spec: TokenizerSpec,
    tokenizer: Tokenizer,
    *,
    num_threads: int | None = None,
    on_mismatch: Callable[[Mismatch], None] | None = None,
) -> Engine:
    """Return the engine of a verdict that all hosts agreed on (:func:`tpuworker.tokens.verdict.join`).

    Args:
        verdict: The joined verdict.
        spec: An engine asked for by name ends the job if it differs while running; ``auto`` falls back.
        tokenizer: The job's tokenizer.
        num_threads: Threads to tokenise with. Default: the container's CPU limit.
        on_mismatch: Called once if the reference takes over while running.
    """
    threads = num_threads or cpu_limit()
    reference = load_engine("reference", tokenizer.json_text, threads)
    if verdict.engine == "reference":
        return reference
    engine = load_engine(verdict.engine, tokenizer.json_text, threads_of_fast(tokenizer, threads))
    return ProvenEngine(engine, reference, verdict, strict=spec.engine != "auto", on_mismatch=on_mismatch)


def threads_of_fast(tokenizer: Tokenizer, processors: int) -> int:
    """Return the threads of a fast engine: what reading and writing need of the processors is left to them.

    They need about one where a pre-tokenizer splits words: there an engine with two threads on two processors is a
    third slower than one that has them to itself half the time. Where none does (Llama-2's kind) the engine is the
    bottleneck, and gets all of them: 1.4 to 1.7 times as fast on two processors (docs/speed.md).

    Args:
        tokenizer: The job's tokenizer.
        processors: The container's CPU limit.
    """
    return max(1, processors - 1) if tokenizer.splits_words else processors


@dataclass(frozen=True)
class _Rejected:
    verdict: Verdict
    mismatch: Mismatch


def _judge(
    name: EngineName, tokenizer: Tokenizer, samples: Sequence[str], trials: Trials, reasons: tuple[str, ...]
) -> Verdict | _Rejected | str:
    """Return the verdict for an engine that may work, what it did wrong, or why it was not tried."""
    if (reason := refusal_of(name, tokenizer.json_text)) is not None:
        return reason
    try:
        engine = load_engine(name, tokenizer.json_text, threads_of_fast(tokenizer, trials.threads))
    except EngineRefusal as error:
        return str(error)
    reference = load_engine("reference", tokenizer.json_text, trials.threads)
    file = VerdictFile.of(trials.directory, tokenizer, name) if trials.directory else None
    remembered = file.read() if file else None
    divergent: tuple[tuple[int, int], ...] = remembered or ()
    samples = _first_samples(samples, SAMPLE_BYTES if remembered is None else SAMPLE_BYTES_AGAIN)
    num_trials = 0
    mismatch = None
    if remembered is None:
        finding = try_everything(
            engine, reference, tokenizer.json_text, samples, seed=trials.seed, effort=trials.effort
        )
        divergent, num_trials, mismatch = finding.divergent, finding.num_trials, finding.mismatch
    if mismatch is None:
        finding = try_samples(engine, reference, samples, divergent)
        num_trials, mismatch = num_trials + finding.num_trials, finding.mismatch
    verdict = Verdict(
        engine=name,
        version=engine.version,
        reference_version=reference.version,
        state="routed" if divergent else "verified",
        divergent=divergent,
        reasons=reasons,
        file_fingerprint=tokenizer.file_fingerprint,
        num_trials=num_trials,
    )
    if mismatch is not None:
        return _Rejected(verdict, mismatch)
    if file and remembered is None:
        file.write(divergent)
    return verdict


def _first_samples(samples: Sequence[str], most_bytes: int) -> list[str]:
    taken: list[str] = []
    size = 0
    for text in samples[:SAMPLE_TEXTS]:
        if size > most_bytes:
            break
        taken.append(text)
        size += len(text)
    return taken
