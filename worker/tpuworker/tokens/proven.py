"""The engine a job works with: a fast one for most texts, the reference for those it gets wrong, and an eye on it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tpuworker import arrow
from tpuworker.errors import Fault
from tpuworker.tokens.engine import Encoded, Engine, Int64s, Texts, replaced
from tpuworker.tokens.routing import CharacterFinder
from tpuworker.tokens.trial import differing, smallest_mismatch
from tpuworker.tokens.verdict import Mismatch, TokenizerMismatchError, Verdict
from tpuworker.workers import Workers

#: One text in so many is encoded by the reference as well, which is about 35 times slower: 3 % of the time.
CHECK_ONE_OF = 1000
#: A call of some megabytes takes a fraction of a second; longer means tables that grow or a starved container.
SLOW_CALL_SECONDS = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineCounters:
    """What an engine did so far; for metrics.

    Attributes:
        texts: Encoded by either.
        tokens: Made by either.
        checked: Also encoded by the reference.
        mismatched: Of those, how many differed.
        routed: Encoded by the reference alone, for a character the fast engine gets wrong.
        slowest_call_seconds: Longest call.
        fell_back_at_text: Count of texts when the reference took over, or None.
    """

    texts: int = 0
    tokens: int = 0
    checked: int = 0
    mismatched: int = 0
    routed: int = 0
    slowest_call_seconds: float = 0.0
    fell_back_at_text: int | None = None


class ProvenEngine:
    """A fast engine under the verdict it was given.

    Texts with a divergent character go to the reference. One text in a thousand, chosen by its content so that a
    resumed run checks the same ones, is encoded by both *before* its call returns. If they differ, the whole call is
    done again by the reference, which does all the work from there on; or, if the engine was asked for by name, the
    job ends with :class:`TokenizerMismatchError`.

    Args:
        engine: The fast engine.
        reference: The reference, for routed and checked texts and for the time after a mismatch.
        verdict: What was proved.
        strict: The engine was asked for by name.
        on_mismatch: Called once with what was found, when the reference takes over.
    """

    def __init__(
        self,
        engine: Engine,
        reference: Engine,
        verdict: Verdict,
        *,
        strict: bool = False,
        on_mismatch: Callable[[Mismatch], None] | None = None,
    ) -> None:
        self.verdict = verdict
        self._engine: Engine | None = engine
        self._reference = reference
        self._strict = strict
        self._on_mismatch = on_mismatch
        self._finder = CharacterFinder(verdict.divergent) if verdict.divergent else None
        self._checker = Workers(1, "tokenize-check")
        self._lock = threading.Lock()
        self._counters = EngineCounters()

    @property
    def name(self) -> str:
        """Name of the engine that does the work now."""
        return (self._engine or self._reference).name

    @property
    def version(self) -> str:
        """Version of its library."""
        return (self._engine or self._reference).version

    @property
    def counters(self) -> EngineCounters:
        """What was done so far."""
        return self._counters

    def encode(self, texts: Texts) -> Encoded:
        """See :class:`~tpuworker.tokens.engine.Engine`.

        Raises:
            TokenizerMismatchError: The engine was asked for by name and made other ids than the reference.
        """
        import pyarrow as pa

        array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
        started = time.monotonic()
        engine = self._engine
        encoded = self._reference.encode(array) if engine is None else self._encode_fast(engine, array)
        self._count(len(array), len(encoded.ids), time.monotonic() - started)
        return encoded

    def _encode_fast(self, engine: Engine, texts: object) -> Encoded:
        import pyarrow as pa

        assert isinstance(texts, pa.Array)
        routed = self._finder.texts_with(texts) if self._finder else _NONE
        checked = np.setdiff1d(_chosen(texts), routed)
        wanted = self._checker.submit(self._reference.encode, arrow.take(texts, checked)) if len(checked) else None
        encoded = engine.encode(texts)
        if wanted is not None:
            differences = differing(_pick(encoded, checked), wanted.result())
            with self._lock:
                self._counters = replace(self._counters, checked=self._counters.checked + len(checked))
            if len(differences):
                self._fall_back(engine, texts[int(checked[differences[0]])].as_py(), len(differences))
                return self._reference.encode(texts)
        if len(routed):
            with self._lock:
                self._counters = replace(self._counters, routed=self._counters.routed + len(routed))
            encoded = replaced(encoded, routed, self._reference.encode(arrow.take(texts, routed)))
        return encoded

    def _fall_back(self, engine: Engine, text: str, num_mismatched: int) -> None:
        mismatch = smallest_mismatch(engine, self._reference, text)
        with self._lock:
            counters = self._counters
            self._counters = replace(
                counters, mismatched=counters.mismatched + num_mismatched, fell_back_at_text=counters.texts
            )
        if self._strict:
            raise mismatch_error(self.verdict, mismatch)
        with self._lock:
            is_first, self._engine = self._engine is not None, None
        if not is_first:
            return  # another thread met it in the meantime
        _log.warning(
            "TokenizerMismatch: %s %s: %s; texts up to number %d were made by it, the reference goes on from here",
            engine.name, engine.version, mismatch.describe(), self._counters.texts,
        )  # fmt: skip
        if self._on_mismatch is not None:
            self._on_mismatch(mismatch)

    def _count(self, num_texts: int, num_tokens: int, seconds: float) -> None:
        with self._lock:
            counters = self._counters
            self._counters = replace(
                counters,
                texts=counters.texts + num_texts,
                tokens=counters.tokens + num_tokens,
                slowest_call_seconds=max(counters.slowest_call_seconds, seconds),
            )
        if seconds > SLOW_CALL_SECONDS and self._engine is not None:
            _log.warning("%s took %.1f s for %d texts", self.name, seconds, num_texts)


def mismatch_error(verdict: Verdict, mismatch: Mismatch) -> TokenizerMismatchError:
    """Return the error that ends a job whose engine was asked for by name."""
    return TokenizerMismatchError(
        [
            Fault(
                path="spec.data.tokenizer.engine",
                found=f"{verdict.engine} {verdict.version}: {mismatch.describe()}",
                wanted=f"the ids of tokenizers {verdict.reference_version}",
                hint="write engine: auto, which falls back by itself, or engine: reference",
            )
        ]
    )


_NONE = np.zeros(0, np.int64)
#: 2^64 over the golden ratio: multiplying by it spreads neighbours, and the high bits are the good ones.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _chosen(texts: object) -> Int64s:
    """Places of texts to check: by a hash of length and eight bytes, so that a text is chosen or never is."""
    import pyarrow as pa

    assert isinstance(texts, pa.Array)
    _, offset_buffer, content = texts.buffers()
    if content is None or len(texts) == 0 or content.size == 0:
        return _NONE
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(offset_buffer, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content_bytes = np.frombuffer(content, np.uint8)
    lengths = np.diff(offsets)
    eighths = np.arange(1, 16, 2)
    at = offsets[:-1, None] + lengths[:, None] * eighths // 16
    # [texts, 8] bytes are one word each. An empty text has no bytes of its own: its neighbour's must not judge it.
    words = content_bytes[np.minimum(at, len(content_bytes) - 1)].view(np.uint64).reshape(-1)
    mixed = (np.where(lengths > 0, words, 0) ^ lengths.astype(np.uint64)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _GOLDEN
    return np.flatnonzero((mixed >> np.uint64(32)) % np.uint64(CHECK_ONE_OF) == 0).astype(np.int64)


def _pick(encoded: Encoded, places: Int64s) -> Encoded:
    """Return some texts' ids."""
    parts = [encoded.ids[encoded.offsets[place] : encoded.offsets[place + 1]] for place in places]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return Encoded(np.concatenate(parts), offsets)
