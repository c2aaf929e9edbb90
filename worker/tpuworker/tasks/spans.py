"""From characters to tokens: which tokens cover a span of a text."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tpuworker.tokens.engine import Bools, Encoded, Int64s

Spans = Sequence[tuple[int, int]]


class SpanMasker:
    """Marks the tokens that cover spans of characters.

    Fast engines give ids without places. In byte-level vocabularies a token stands for known bytes, so places are the
    running sum of their numbers, for all texts at once. Where that sum is not the text's size (a normalizer changed it,
    an added token swallowed spaces) and for other vocabularies, the reference encodes the text again with places.

    Args:
        tokenizer_json: Text of the tokenizer file.
    """

    def __init__(self, tokenizer_json: str) -> None:
        from tokenizers import Tokenizer

        self._reference = Tokenizer.from_str(tokenizer_json)
        self._bytes_of_token = _bytes_of_token(tokenizer_json)

    def mask(self, texts: list[str], spans: Sequence[Spans], encoded: Encoded) -> Bools:
        """Return bool [tokens]: True for tokens that cover a character of a span, even if they reach beyond it.

        Args:
            texts: Texts.
            spans: For each text its spans of characters (begin, end).
            encoded: Their ids, without template.
        """
        mask = np.zeros(len(encoded.ids), np.bool_)
        with_spans = [place for place, mine in enumerate(spans) if mine]
        sizes = np.array([len(texts[place].encode("utf-8")) for place in with_spans], np.int64)
        begins, ends = encoded.offsets[:-1][with_spans], encoded.offsets[1:][with_spans]
        if self._bytes_of_token is None:
            exact = np.zeros(len(with_spans), np.bool_)
            reached = np.zeros(1, np.int64)
        else:
            # [tokens + 1]: bytes before each token, over all texts.
            reached = np.concatenate([[0], np.cumsum(self._bytes_of_token[encoded.ids])])
            exact = reached[ends] - reached[begins] == sizes
        for place, is_exact, begin, end in zip(with_spans, exact, begins.tolist(), ends.tolist(), strict=True):
            if is_exact:
                self._mark(mask, texts[place], spans[place], reached[begin : end + 1] - reached[begin], begin)
            else:
                self._mark_by_reference(mask[begin:end], texts[place], spans[place])
        return mask

    def _mark(self, mask: Bools, text: str, spans: Spans, reached: Int64s, begin: int) -> None:
        for first, last in spans:
            first_byte = len(text[:first].encode("utf-8"))
            last_byte = first_byte + len(text[first:last].encode("utf-8"))
            first_token = int(np.searchsorted(reached, first_byte, side="right")) - 1
            last_token = int(np.searchsorted(reached, last_byte - 1, side="right")) - 1
            mask[begin + first_token : begin + last_token + 1] = True

    def _mark_by_reference(self, mask: Bools, text: str, spans: Spans) -> None:
        places = self._reference.encode(text, add_special_tokens=False).offsets
        begins, ends = np.array(places, np.int64).reshape(-1, 2).T
        for first, last in spans:
            mask |= (begins < last) & (ends > first)


def _bytes_of_token(tokenizer_json: str) -> Int64s | None:
    """int64 [vocabulary]: bytes of text each token stands for, or None if the vocabulary is not byte-level."""
    content = json.loads(tokenizer_json)
    nodes = content.get("pre_tokenizer") or {}
    kinds = [nodes.get("type"), *(node.get("type") for node in nodes.get("pretokenizers", ()))]
    if "ByteLevel" not in kinds or not isinstance(content["model"].get("vocab"), dict):
        return None
    # In these vocabularies every byte is written as one character.
    sizes = {token_id: len(token) for token, token_id in content["model"]["vocab"].items()}
    sizes |= {token["id"]: len(token["content"].encode("utf-8")) for token in content.get("added_tokens") or ()}
    table = np.zeros(max(sizes, default=-1) + 1, np.int64)
    table[list(sizes)] = list(sizes.values())
    return table
