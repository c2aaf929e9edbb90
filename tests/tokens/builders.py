"""Jobs' data sections and tokenizers with only what a test is about."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tests.tokens.families import byte_level_bpe
from tpuworker.spec.data import DataSpec
from tpuworker.tokens.engines.reference import ReferenceEngine
from tpuworker.tokens.resolve import load_tokenizer
from tpuworker.tokens.tokenizer import Tokenizer


def make_data(path: Path | str = "somewhere", **fields: Any) -> DataSpec:
    """A data section; ``tokenizer`` fields are given as a dict beside ``path``."""
    tokenizer = {"path": str(path), **fields.pop("tokenizer", {})}
    document = {
        "sources": [{"files": "rows-*.parquet"}],
        "max_length": 16,
        "global_batch_size": 4,
        "tokenizer": tokenizer,
        **fields,
    }
    return TypeAdapter(DataSpec).validate_python(_tuples(document))


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


@cache
def make_tokenizer(json_text: str | None = None, **fields: Any) -> Tokenizer:
    """A tokenizer resolved from a file with this text; byte-level BPE unless told."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tokenizer.json"
        path.write_text(json_text or byte_level_bpe(), encoding="utf-8")
        return load_tokenizer(make_data(path, **{"task": "text", **fields}))


@cache
def make_reference(json_text: str | None = None, num_threads: int = 2) -> ReferenceEngine:
    """The reference engine of such a tokenizer."""
    return ReferenceEngine(make_tokenizer(json_text).json_text, num_threads)
