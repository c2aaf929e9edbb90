"""The reference engine: the ``tokenizers`` library itself, its calls spread over Python threads."""

from __future__ import annotations

import os
from array import array
from importlib.metadata import version
from typing import Any

import numpy as np

from tpuworker.tokens.engine import Encoded, Texts, concatenate
from tpuworker.tokens.strings import as_strings, split_evenly
from tpuworker.workers import Workers

#: Most texts of one call. A call's ids leave the library as Python lists, so small calls keep the peak low; below
#: 128 the cost of a call begins to show.
TEXTS_PER_CALL = 256


class ReferenceEngine:
    """Encodes with ``encode_batch_fast`` in threads of this process; the library's own threads are switched off.

    The library's threads leave one processor idle while ids are turned into Python lists, and short calls scale badly
    on them. Python threads overlap the two, since encoding releases the GIL: about a tenth faster on two processors.

    Args:
        tokenizer_json: Text of the tokenizer file, without truncation and padding.
        num_threads: Calls at once.
    """

    name = "reference"

    def __init__(self, tokenizer_json: str, num_threads: int) -> None:
        from tokenizers import Tokenizer

        # Read by the library at each call, in the whole process. Who sets it explicitly keeps their value.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.version = version("tokenizers")
        self.num_threads = num_threads
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._pool = Workers(num_threads, "tokenize") if num_threads > 1 else None

    def encode(self, texts: Texts) -> Encoded:
        """See :class:`~tpuworker.tokens.engine.Engine`."""
        strings = as_strings(texts)
        parts = split_evenly(strings, min_parts=self.num_threads, max_texts=TEXTS_PER_CALL)
        if self._pool is None or len(parts) == 1:
            return concatenate([self._encode_call(part) for part in parts])
        coming = [self._pool.submit(self._encode_call, part) for part in parts]
        return concatenate([each.result() for each in coming])

    def _encode_call(self, strings: list[str]) -> Encoded:
        encodings: list[Any] = self._tokenizer.encode_batch_fast(strings, add_special_tokens=False)
        offsets = np.zeros(len(encodings) + 1, np.int64)
        np.cumsum([len(encoding) for encoding in encodings], out=offsets[1:])
        # The library hands ids out as lists only. fromlist() is the shortest way from a list of ints to memory: an
        # iterator over all lists costs half as much again.
        ids = array("i")
        for encoding in encodings:
            ids.fromlist(encoding.ids)
        return Encoded(np.frombuffer(ids, np.int32), offsets)
