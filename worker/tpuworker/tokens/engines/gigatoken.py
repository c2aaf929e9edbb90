"""gigatoken: takes Arrow memory as it is, reads Metaspace files too; its cache of words is kept bounded."""

from __future__ import annotations

import os
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from tpuworker.tokens.engine import Encoded, EngineRefusal, Texts

#: Text after which the tokenizer is made anew. Its cache of words never shrinks: 1 GB of random letters took 7.9 GB.
#: Making it anew costs 0.1 to 0.6 s and a cold cache.
RECYCLE_AFTER_BYTES = 256 * 1024 * 1024


class GigatokenEngine:
    """Encodes with ``gigatoken.Tokenizer.encode_batch`` on an Arrow string array, without a Python string.

    The library does not check UTF-8 (bytes vanish silently); :func:`tpuworker.tasks.column.usable_texts` does.
    """

    name = "gigatoken"

    def __init__(self, tokenizer_json: str, num_threads: int) -> None:
        try:
            import awkward  # noqa: F401  (what it returns; 0.5 s to import, so that happens here and not in a batch)
            import gigatoken

            self.version = version("gigatoken")
        except (ImportError, PackageNotFoundError) as error:
            raise EngineRefusal("gigatoken is not installed (extra: fast)") from error
        os.environ.setdefault("RAYON_NUM_THREADS", str(num_threads))
        self._make = gigatoken.Tokenizer.from_json
        self._json = tokenizer_json
        # None lets it notice a forked child, where its pool would hang; True would not.
        self._parallel = None if num_threads > 1 else False
        self._encoded_bytes = 0
        self._lock = threading.Lock()
        try:
            self._tokenizer: Any = self._make(tokenizer_json)
        except Exception as error:  # what it cannot read it says with ValueError or a bare Exception
            raise EngineRefusal(f"gigatoken cannot read the file: {str(error).splitlines()[0][:200]}") from error

    def encode(self, texts: Texts) -> Encoded:
        """See :class:`~tpuworker.tokens.engine.Engine`."""
        import awkward as ak

        strings, num_bytes = _as_awkward(texts)
        if len(strings) == 0:
            return Encoded(np.zeros(0, np.int32), np.zeros(1, np.int64))
        with self._lock:
            if self._encoded_bytes > RECYCLE_AFTER_BYTES:
                self._tokenizer = self._make(self._json)
                self._encoded_bytes = 0
            self._encoded_bytes += num_bytes
            tokenizer = self._tokenizer  # another thread may replace it meanwhile
        layout = ak.to_layout(tokenizer.encode_batch(strings, parallel=self._parallel))
        return Encoded(layout.content.data.view(np.int32), layout.offsets.data.astype(np.int64, copy=False))


def _as_awkward(texts: Texts) -> tuple[Any, int]:
    """Wrap the buffers of an Arrow string array; only 32-bit offsets are copied. Returns the bytes of text, too."""
    import awkward as ak
    import pyarrow as pa

    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
    if not pa.types.is_large_string(array.type):
        array = array.cast(pa.large_string())
    _, offsets, content = array.buffers()
    if len(array) == 0 or content is None:
        return ak.Array([""] * len(array)), 0
    positions = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    characters = ak.contents.NumpyArray(np.frombuffer(content, np.uint8), parameters={"__array__": "char"})
    layout = ak.contents.ListOffsetArray(ak.index.Index64(positions), characters, parameters={"__array__": "string"})
    return ak.Array(layout), int(positions[-1] - positions[0])
