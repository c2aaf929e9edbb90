"""The engines, one file each, in the order in which ``auto`` tries them; the reference is last and needs no proof."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Literal

from tpuworker.tokens.engine import Engine

EngineName = Literal["fastokens", "gigatoken", "reference"]

#: Name to the class that does the work. fastokens goes first: equal speed, memory of fixed size, fewer differences.
_CLASSES: dict[EngineName, str] = {
    "fastokens": "FastokensEngine",
    "gigatoken": "GigatokenEngine",
    "reference": "ReferenceEngine",
}
FAST: tuple[EngineName, ...] = ("fastokens", "gigatoken")


# One is tried and then does the work; making it anew would read the vocabulary again, a quarter of a second of a start.
@lru_cache(maxsize=3)
def load_engine(name: EngineName, tokenizer_json: str, num_threads: int) -> Engine:
    """Return an engine, the same one for the same arguments; only its own library is imported.

    Args:
        name: One of the above.
        tokenizer_json: Text of the tokenizer file, without truncation and padding.
        num_threads: Threads to work with.

    Raises:
        EngineRefusal: The library is not installed, or cannot read this file.
    """
    module = import_module(f"tpuworker.tokens.engines.{name}")
    engine: Engine = getattr(module, _CLASSES[name])(tokenizer_json, num_threads)
    return engine


# Threads of a pool do not live on in a forked process.
os.register_at_fork(after_in_child=load_engine.cache_clear)
