"""Which tokens begin, end and pad a text, and how each was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuworker.errors import Fault
from tpuworker.spec.data import TokenizerSpec

#: Names by which files without a configuration are understood; only tokens that the file itself calls special count.
_USUAL = {
    "bos_token": ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>"),
    "eos_token": ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]"),
    "pad_token": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
}


@dataclass(frozen=True)
class Template:
    """Ids around every text."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


@dataclass(frozen=True)
class SpecialTokens:
    """Special ids, how the pad token was chosen, and what is missing."""

    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    pad_reason: str
    named: dict[str, str]
    suggestion: str
    faults: tuple[Fault, ...]


def find_template(tokenizer: Any) -> Template | None:
    """Return the ids that the post-processor puts before and after a text; None if it does anything else.

    Args:
        tokenizer: ``tokenizers.Tokenizer``.
    """
    seen = tokenizer.encode("a", add_special_tokens=True)
    ids, mask = seen.ids, seen.special_tokens_mask
    num_before = mask.index(0) if 0 in mask else len(mask)
    num_after = mask[::-1].index(0) if 0 in mask else 0
    template = Template(tuple(ids[:num_before]), tuple(ids[len(ids) - num_after :]))
    for text in ("", "a", "b a\n b"):
        bare = tokenizer.encode(text, add_special_tokens=False).ids
        if [*template.prefix, *bare, *template.suffix] != tokenizer.encode(text, add_special_tokens=True).ids:
            return None
    return template


def find_special_tokens(
    tokenizer: Any, file_texts: Sequence[str], named: dict[str, str], spec: TokenizerSpec
) -> SpecialTokens:
    """Return begin, end and pad token.

    The end token is the spec's ``eos_token``, else the configuration's, else a special token of the file with a usual
    name. The pad token is the spec's ``pad_token``, else the configuration's, else the one in the file's own padding,
    else a special token with a usual name, else the end token. A pad that equals the end token does no harm: pads are
    masked by position.
    """
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    tokens = dict(named)
    for name, usual in _USUAL.items():
        if name not in tokens and (found := next((token for token in usual if token in specials), None)):
            tokens[name] = found
    pad_reason = "the tokenizer's own pad token"
    if "pad_token" not in named and (padding := _padding_token(file_texts)) is not None:
        tokens["pad_token"], pad_reason = padding, "the pad token of the file's own padding"
    if spec.eos_token is not None:
        tokens["eos_token"] = spec.eos_token
    if spec.pad_token is not None:
        tokens["pad_token"], pad_reason = spec.pad_token, "named in spec.data.tokenizer.pad_token"
    elif "pad_token" not in tokens and "eos_token" in tokens:
        tokens["pad_token"], pad_reason = tokens["eos_token"], "the end token, since the tokenizer has no pad token"

    ids = {name: tokenizer.token_to_id(token) for name, token in tokens.items()}
    suggestion = f" ({', '.join(map(repr, specials[:6]))})" if specials else ""
    faults = [
        Fault(
            path=f"spec.data.tokenizer.{name}" if getattr(spec, name, None) else f"tokenizer_config.json: {name}",
            found=f"{tokens[name]!r}, which is not in the vocabulary",
            wanted="a token of the tokenizer",
            hint=f"its special tokens are{suggestion}" if specials else "it has no special tokens",
        )
        for name in ("eos_token", "pad_token")
        if name in tokens and ids[name] is None
    ]
    if "pad_token" not in tokens:
        faults.append(
            Fault(
                path="spec.data.tokenizer.pad_token",
                found="a tokenizer with neither a pad token nor an end token",
                wanted="a token that fills short rows (looked for: this field, tokenizer_config.json, the file's "
                "padding, special tokens with usual names, the end token)",
                hint=f"name one of its tokens{suggestion}; pads are masked by position, so any will do",
            )
        )
    return SpecialTokens(
        bos_id=ids.get("bos_token"),
        eos_id=ids.get("eos_token"),
        pad_id=ids.get("pad_token"),
        pad_reason=pad_reason,
        named={name: token for name, token in tokens.items() if ids[name] is not None},
        suggestion=suggestion,
        faults=tuple(faults),
    )


def _padding_token(file_texts: Sequence[str]) -> str | None:
    for text in file_texts:
        token = (json.loads(text).get("padding") or {}).get("pad_token")
        if isinstance(token, str):
            return token
    return None
