"""Which engine does the work of a job."""

from __future__ import annotations

from tpuworker.spec.data import DataSpec
from tpuworker.tokens.engine import Engine
from tpuworker.tokens.processors import cpu_limit
from tpuworker.tokens.reference import ReferenceEngine
from tpuworker.tokens.tokenizer import Tokenizer


def choose_engine(data: DataSpec, tokenizer: Tokenizer, *, num_threads: int | None = None) -> Engine:
    """Return the engine of a job.

    Args:
        data: The job's data section.
        tokenizer: From :func:`tpuworker.tokens.resolve.load_tokenizer`.
        num_threads: Threads to tokenise with. Default: the container's CPU limit.
    """
    return ReferenceEngine(tokenizer.json_text, num_threads or cpu_limit())
