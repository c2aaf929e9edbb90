"""Which tokenizer engine serves a loader: the reference, or a faster one that is proved equal on the caller's data."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal

from tpuworker.api.columns import as_column
from tpuworker.api.meeting import Meeting
from tpuworker.api.recipe import Indexed, Streamed
from tpuworker.pipeline import sample_texts
from tpuworker.spec.data import DataSpec
from tpuworker.tokens.choose import SAMPLE_TEXTS, Trials, judge_engines, make_engine
from tpuworker.tokens.engine import Engine
from tpuworker.tokens.tokenizer import Tokenizer
from tpuworker.tokens.verdict import Mismatch, Verdict, join

EngineChoice = Literal["reference", "auto", "fastokens", "gigatoken"]
_log = logging.getLogger(__name__)


def proved_engine(data: DataSpec, tokenizer: Tokenizer, origin: Indexed | Streamed, meeting: Meeting | None) -> Engine:
    """Return the engine that ``data.tokenizer.engine`` asks for, tried on texts of the data as a job tries it.

    Args:
        data: The data section.
        tokenizer: What makes the ids.
        origin: Where texts to try lie; asked only if an engine is to be tried.
        meeting: Where ranks can talk they take one engine, the weakest that any of them has proved.

    Raises:
        SpecError: An engine was asked for by name that cannot read the tokenizer, or is missing.
        TokenizerMismatchError: An engine was asked for by name and makes other ids.
    """
    spec = data.tokenizer
    texts = [] if spec.engine == "reference" else sample_texts(data, tokenizer, first_records(origin))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpulaunch" / "engines"
    verdict = judge_engines(spec, tokenizer, texts, Trials(seed=data.shuffle.seed, directory=cache))
    if meeting is not None:
        told = meeting.exchange("tokenizer engine", verdict.to_json().encode())
        verdict = join([Verdict.from_json(payload.decode()) for payload in told])
    return make_engine(verdict, spec, tokenizer, on_mismatch=_tell)


def first_records(origin: Indexed | Streamed) -> Any:
    """Return the first records of some rows, at most those of a unit, as the column that a pipeline encodes."""
    if isinstance(origin, Indexed):
        return origin.first_unit(origin.index.sources[0].schema).column(0).slice(0, SAMPLE_TEXTS)
    first = next(iter(origin.stream.with_format("arrow").iter(batch_size=SAMPLE_TEXTS)))
    return as_column(first, origin.names)


def _tell(mismatch: Mismatch) -> None:
    _log.warning("the tokenizer's reference takes over: %s", mismatch.describe())
