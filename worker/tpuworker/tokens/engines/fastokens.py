"""fastokens: byte-level BPE and Llama-2 style files, memory of fixed size."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from tpuworker.tokens.engine import Encoded, EngineRefusal, Texts
from tpuworker.tokens.strings import as_strings


class FastokensEngine:
    """Encodes with ``fastokens._native.Tokenizer.encode_batch_flat``: ids come back as bytes, no list in between.

    The class is private, hence the exact pin in the extra. ``fastokens.patch_transformers`` is never called: it
    changes decoding in the whole process.
    """

    name = "fastokens"

    def __init__(self, tokenizer_json: str, num_threads: int) -> None:
        try:
            from fastokens._native import Tokenizer

            self.version = version("fastokens")
        except (ImportError, PackageNotFoundError) as error:
            raise EngineRefusal("fastokens is not installed (extra: fast)") from error
        # Its pool is made at the first call, sized by this variable, else by affinity; RAYON_NUM_THREADS means nothing.
        os.environ.setdefault("FASTOKENS_BPE_THREADS", str(num_threads))
        try:
            self._tokenizer = Tokenizer.from_json_str(tokenizer_json)
        except Exception as error:  # what it cannot read it says with ValueError or a bare Exception
            raise EngineRefusal(f"fastokens cannot read the file: {str(error).splitlines()[0][:200]}") from error

    def encode(self, texts: Texts) -> Encoded:
        """See :class:`~tpuworker.tokens.engine.Engine`."""
        ids, offsets = self._tokenizer.encode_batch_flat(as_strings(texts), add_special_tokens=False)
        # Unsigned in the library; ids are far below 2^31, so the same bytes are int32.
        return Encoded(np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64))
