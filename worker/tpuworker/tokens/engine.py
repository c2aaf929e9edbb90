"""What an engine is: texts in, flat token ids and offsets out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Texts of one call: an Arrow string or large_string array without nulls and of valid UTF-8, or Python strings.
Texts = Any


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of several texts, one after the other.

    Attributes:
        ids: int32 [tokens]. May be a read-only view of the engine's own memory.
        offsets: int64 [texts + 1]; text ``i`` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Int32s
    offsets: Int64s

    @property
    def num_texts(self) -> int:
        """How many texts were encoded."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64s:
        """int64 [texts]: tokens of each text."""
        return np.diff(self.offsets)


class EngineRefusal(Exception):  # noqa: N818  (not an error of the job: another engine does the work)
    """An engine cannot do a tokenizer's work; ``str()`` says why."""


class Encoder(Protocol):
    """What a task needs of an engine."""

    def encode(self, texts: Texts) -> Encoded:
        """Return the ids of texts, in their order.

        Args:
            texts: Arrow string array without nulls, or a sequence of str.
        """


class Engine(Encoder, Protocol):
    """Something that turns texts into ids, without a Python list of ids on the way where that can be avoided.

    An engine adds no special tokens of the template (BOS, EOS, [CLS]): they are the same for every text, so the
    layout adds them. Added tokens that stand in the text are recognised as the reference does. ``encode`` may be
    called from several threads at once; it releases the GIL while it works.
    """

    @property
    def name(self) -> str:
        """``reference``, ``fastokens`` or ``gigatoken``."""

    @property
    def version(self) -> str:
        """Version of the library that does the work."""


def concatenate(parts: Sequence[Encoded]) -> Encoded:
    """Return several results as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Encoded(np.zeros(0, np.int32), np.zeros(1, np.int64))
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    ids = np.concatenate([part.ids[part.offsets[0] : part.offsets[-1]] for part in parts])
    return Encoded(ids, offsets)


def replaced(encoded: Encoded, places: Int64s, by: Encoded) -> Encoded:
    """Return the ids with those of some texts replaced.

    Args:
        encoded: Ids of all texts.
        places: int64 [replaced], rising: which texts.
        by: Their new ids, in that order.
    """
    parts: list[Encoded] = []
    begin = 0
    for index, place in enumerate(places.tolist()):
        parts.append(Encoded(encoded.ids, encoded.offsets[begin : place + 1]))
        parts.append(Encoded(by.ids, by.offsets[index : index + 2]))
        begin = place + 1
    parts.append(Encoded(encoded.ids, encoded.offsets[begin:]))
    return concatenate(parts)
