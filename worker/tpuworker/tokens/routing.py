"""Which texts hold a character that an engine gets wrong: found in the bytes of a whole column at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tpuworker.tokens.engine import Int64s

if TYPE_CHECKING:
    import pyarrow as pa


class CharacterFinder:
    """Finds texts with characters of some runs of code points.

    One look-up per byte finds places where such a character may begin (by its first byte), a second one at those
    places decides. About 4 GB/s where there are none.

    Args:
        runs: Runs of code points (first, last), in order, disjoint.
    """

    def __init__(self, runs: Sequence[tuple[int, int]]) -> None:
        self._firsts = np.array([first for first, _ in runs], np.int64)
        self._lasts = np.array([last for _, last in runs], np.int64)
        self._may_begin = np.zeros(256, np.bool_)
        for first, last in runs:
            # All characters between two code points begin with a byte between theirs.
            self._may_begin[chr(first).encode()[0] : chr(last).encode()[0] + 1] = True
        # Between the first bytes of a letter of one byte and of one of two lie those that begin no character.
        self._may_begin[0x80:0xC0] = False

    def texts_with(self, texts: pa.Array) -> Int64s:
        """Return the places of texts that hold such a character.

        Args:
            texts: Arrow string or large_string array without nulls, of valid UTF-8.
        """
        import pyarrow as pa

        _, offset_buffer, content = texts.buffers()
        if content is None or len(texts) == 0:
            return np.zeros(0, np.int64)
        width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        offsets = np.frombuffer(offset_buffer, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        content_bytes = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
        at = np.flatnonzero(self._may_begin[content_bytes])
        if not len(at):
            return np.zeros(0, np.int64)
        codes = decode_at(content_bytes, at)
        run = np.searchsorted(self._firsts, codes, side="right") - 1
        hits = at[(run >= 0) & (codes <= self._lasts[np.maximum(run, 0)])]
        return np.unique(np.searchsorted(offsets - offsets[0], hits, side="right") - 1)


def decode_at(content: np.ndarray[tuple[int], np.dtype[np.uint8]], at: Int64s) -> Int64s:
    """Return int64 [places]: the code points whose first bytes stand at these places of valid UTF-8."""
    padded_last = len(content) - 1
    first, second, third, fourth = (content[np.minimum(at + step, padded_last)].astype(np.int64) for step in range(4))
    two = (first & 0x1F) << 6 | (second & 0x3F)
    three = (first & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F)
    four = (first & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | (fourth & 0x3F)
    return np.select([first < 0x80, first < 0xE0, first < 0xF0], [first, two, three], four)
