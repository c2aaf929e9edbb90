"""Tokenizers of three families, trained on a sample of their corpus; the same sample gives the same file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

Family = Literal["byte-level", "llama-2", "cjk"]
END_TOKEN = "<|end|>"
PAD_TOKEN = "<|pad|>"
#: Enough for a stable vocabulary, little enough to be trained in seconds.
SAMPLE_CHARACTERS: dict[Family, int] = {"byte-level": 24_000_000, "llama-2": 24_000_000, "cjk": 1_500_000}
#: The split of current byte-level models: contractions, letters with one sign before, digits by three, line ends.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(family: Family, sample: Iterator[str], path: Path, vocabulary_size: int = 32_000) -> None:
    """Train a tokenizer and write its tokenizer.json.

    ``byte-level`` is GPT-2's form, ``llama-2`` has Prepend and Replace normalizers and byte fallback, ``cjk`` is
    byte-level with NFC and the split of current multilingual models.
    """
    text = (
        _train_llama_2(sample, vocabulary_size) if family == "llama-2" else _byte_level(family, sample, vocabulary_size)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _byte_level(family: Family, sample: Iterator[str], vocabulary_size: int) -> str:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    if family == "cjk":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_TOKEN, PAD_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        # Whole sentences are one word where a script has no spaces; without a bound they take minutes.
        max_token_length=16 if family == "cjk" else None,
    )
    tokenizer.train_from_iterator(sample, trainer)
    return str(tokenizer.to_str(pretty=True))


def _train_llama_2(sample: Iterator[str], vocabulary_size: int) -> str:
    """Train on words (whole documents would take hours), then write the file as Llama 2's: normalizers, no split."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    specials = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=specials + fallback, limit_alphabet=2_000, show_progress=False
    )
    tokenizer.train_from_iterator(sample, trainer)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    # Byte tokens are entries of the vocabulary and nothing more: as added tokens they would match in the text.
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] in specials]
    document["pre_tokenizer"] = None
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)
