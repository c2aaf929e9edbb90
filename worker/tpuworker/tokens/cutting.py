"""Cutting long texts before they are tokenised, where no token that is kept can tell.

A padded row holds ``max_length`` tokens, a document may have a hundred times as many. Tokenising all of it is work for
nothing, if its beginning alone gives the same tokens. It does when the text is cut between an ASCII letter and a space
with another ASCII letter behind it, and nothing in the tokenizer reaches over such a place:

- the pre-tokenizer always splits there (known regexes and BertPreTokenizer do), or it does not split at all and no
  token of the vocabulary has a letter before a space, so that no merge can cross;
- the normalizer works on neighbours that are not there (no letter composes with a space);
- no added token has a letter, a space and a letter in its text.

Files for which this is not known are never cut. Whether enough text was kept is seen afterwards: a text whose beginning
gives too few tokens is tokenised whole.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tpuworker import arrow
from tpuworker.tokens.engine import Encoded, Engine, Int64s, replaced
from tpuworker.tokens.shapes import ANYTHING, Many, matches

if TYPE_CHECKING:
    import pyarrow as pa

#: Text kept for each token wanted. English has 3 to 5 bytes a token; too little is mended, too much is wasted.
_BYTES_PER_TOKEN = 6
#: Bytes behind that in which a place to cut is looked for.
_SEARCH_BYTES = 512

#: Regexes after which a letter and a space are never in one piece: GPT-2, cl100k, Llama-3, Qwen-2, o200k.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s+(?!\S)|\s+"
_WORDS_OR_SIGNS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]%s"
_SPLITTING_REGEXES = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + _SPACES,
    *(
        _CONTRACTIONS + _WORDS_OR_SIGNS % (digits, breaks) + _SPACES
        for digits in (r"\p{N}", r"\p{N}{1,3}")
        for breaks in ("", "+")
    ),
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+" + _SPACES,
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": ANYTHING, "trim_offsets": ANYTHING, "use_regex": True}
_SPLITTERS = (
    _BYTE_LEVEL,
    {"type": "BertPreTokenizer"},
    {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _SPLITTING_REGEXES}, "behavior": "Isolated", "invert": False},
            {**_BYTE_LEVEL, "use_regex": False},
        ],
    },
)
_LOCAL = (
    {"type": "NFC"},
    {"type": "NFKC"},
    {"type": "Lowercase"},
    {"type": "BertNormalizer", "clean_text": ANYTHING, "handle_chinese_chars": ANYTHING, "strip_accents": ANYTHING,
     "lowercase": ANYTHING},
    {"type": "Prepend", "prepend": ANYTHING},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
)  # fmt: skip
_LOCAL_NORMALIZERS = (None, *_LOCAL, {"type": "Sequence", "normalizers": Many(_LOCAL)})
_WHOLE = (None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": ANYTHING, "split": ANYTHING})
_LETTER_THEN_SPACE = re.compile("[A-Za-z]▁")
_CROSSING = re.compile("[A-Za-z] [A-Za-z]")
_CROSSING_BYTES = re.compile(_CROSSING.pattern.encode())


def may_cut(tokenizer_json: str) -> bool:
    """Say whether texts of a tokenizer file may be cut between a letter and a space with a letter behind it."""
    content = json.loads(tokenizer_json)
    added = [token["content"] for token in content.get("added_tokens") or ()]
    if any(map(_CROSSING.search, added)) or not matches(content.get("normalizer"), _LOCAL_NORMALIZERS):
        return False
    splitter = content.get("pre_tokenizer")
    if matches(splitter, _SPLITTERS):
        return True
    model = content["model"]
    if not matches(splitter, _WHOLE) or model.get("type", "BPE") != "BPE" or not _marks_spaces(content):
        return False
    # An unknown mark could fuse with an unknown letter.
    return "▁" in model["vocab"] and not any(map(_LETTER_THEN_SPACE.search, model["vocab"]))


def _marks_spaces(content: dict[str, Any]) -> bool:
    """Whether spaces are written as marks before merging, so that the vocabulary tells which merges cross one."""
    return content.get("pre_tokenizer") is not None or '"content": "▁"' in json.dumps(
        content.get("normalizer"), ensure_ascii=False
    )


class CuttingEncoder:
    """Encodes texts of which only the first tokens are wanted.

    Args:
        engine: Makes the ids.
        tokens_wanted: Tokens of each text that must be right; what comes behind them may be missing. A text that has
            fewer keeps all of them, one that has more keeps at least so many.
    """

    def __init__(self, engine: Engine, tokens_wanted: int) -> None:
        self._engine = engine
        self._tokens_wanted = tokens_wanted

    def encode(self, texts: pa.Array) -> Encoded:
        """Return ids of texts, those of long ones possibly without their end.

        Args:
            texts: Arrow string or large_string array without nulls, of valid UTF-8.
        """
        shortened, cut = _shortened(texts, self._tokens_wanted * _BYTES_PER_TOKEN)
        encoded = self._engine.encode(shortened)
        if not len(cut):
            return encoded
        too_short = cut[encoded.lengths[cut] < self._tokens_wanted]
        if not len(too_short):
            return encoded
        return replaced(encoded, too_short, self._engine.encode(arrow.take(texts, too_short)))


def _shortened(texts: pa.Array, budget_bytes: int) -> tuple[pa.Array, Int64s]:
    """Return texts of about this size at most, and int64 [cut]: the places of those that were cut.

    Searched and copied text by text, with views of memory: far fewer bytes are looked at than NumPy would, and the
    interpreter's lock is not handed over (and waited for) at every step.
    """
    import pyarrow as pa

    _, offset_buffer, content_buffer = texts.buffers()
    if content_buffer is None or len(texts) == 0:
        return texts, np.zeros(0, np.int64)
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(offset_buffer, width)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content = memoryview(content_buffer)
    long = np.flatnonzero(np.diff(offsets) > budget_bytes + _SEARCH_BYTES + 2)
    places = [
        _CROSSING_BYTES.search(content, begin, begin + _SEARCH_BYTES + 2)
        for begin in (offsets[long] + budget_bytes).tolist()
    ]
    cut = long[[place is not None for place in places]]
    if not len(cut):
        return texts, cut
    begins, ends = offsets[:-1], offsets[1:].copy()
    ends[cut] = [place.start() + 1 for place in places if place is not None]
    kept = b"".join([content[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)])
    new_offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(ends - begins, out=new_offsets[1:])
    buffers = [None, pa.py_buffer(new_offsets), pa.py_buffer(kept)]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers), cut
