"""Texts an engine is tried on: nasty ones, random mixes, pairs of marks, and every character there is. All pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from random import Random

import numpy as np

#: Characters of one text of the sweep. Enough to make calls cheap, few enough to find the one that differs.
SWEEP_WIDTH = 64
#: Of characters no standard has assigned yet, outside the first two planes, one in so many is tried.
_UNASSIGNED_STRIDE = 16

_WORDS = (
    "the", "The", "THE", "don't", "it's", "I'LL", "we've", "x86", "3.14159", "1234567", "1,000", "ﬁn", "naïve",
    "Straße", "İstanbul", "ǅ", "東京", "日本語", "안녕", "नमस्ते", "สวัสดี", "שלום", "مرحبا", "привет", "Ωmega", "e\u0301",
    "n\u0303o",
    "👩‍👩‍👧‍👦", "🇪🇺", "👍🏽", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u180e", "'", "''",
    "\u2019s", "_",
    "__init__", "()", "{}", "[]", ";", "!!!", "...", "…", "->", "//", "\\n", "<", ">", "<|", "|>", "▁", "▁▁", "Ġ", "Ċ",
    "\x00", "\x1f", "\x7f", "\ufffd", "\uffff", "\U0010ffff", "٣", "½", "Ⅷ", "²",
)  # fmt: skip
_SPACES = (" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\t\t", "", "", "")
_RUN_CHARACTERS = (
    " ",
    "\n",
    "\t",
    "\r\n",
    " \n",
    "a",
    "A",
    "1",
    "!",
    "é",
    "東",
    "🙂",
    "\u0301",
    "\u200d",
    "▁",
    "'s",
    "ab",
)
_RUN_LENGTHS = (2, 3, 7, 31, 100, 1000, 10_000)


def nasty_texts(added_tokens: Sequence[str]) -> list[str]:
    """Return some 500 texts that have broken tokenizers.

    Args:
        added_tokens: Contents of the file's added tokens; each is tried alone, doubled, cut, in words, in upper case.
    """
    texts = ["", *_WORDS, *(space for space in _SPACES if space)]
    texts += [character * length for character in _RUN_CHARACTERS for length in _RUN_LENGTHS]
    texts += [f"a{character * 50}b" for character in _RUN_CHARACTERS]
    texts += [f" {word}" for word in _WORDS] + [f"{word} " for word in _WORDS] + [f"a{word}b" for word in _WORDS]
    texts += [
        "\ufeffstart",
        "end\x00",
        "a\r\nb\r\n\r\nc",
        "  lead",
        "trail  ",
        "tab\tbed",
        "१२३ ٤٥٦",
        "A" * 3 + "b" * 3,
    ]
    generator = Random("nasty")
    for errors in ("replace", "ignore"):
        texts += [generator.randbytes(200).decode("utf-8", errors) for _ in range(20)]
    for token in _few(added_tokens, 40):
        texts += [
            token, token * 2, f"{token} {token}", token[:-1], token[1:], f"a{token}b", f" {token} ", f"\n{token}\n",
            token.upper(), token.lower(), f"{token}s", f"x {token[: len(token) // 2]} y",
        ]  # fmt: skip
    return texts


def random_texts(seed: int, count: int, added_tokens: Sequence[str]) -> list[str]:
    """Return random mixes of words, white space, characters of many scripts and added tokens.

    Args:
        seed: Another seed, other texts.
        count: How many.
        added_tokens: Contents of the file's added tokens.
    """
    generator = Random(f"mix/{seed}")
    words = [*_WORDS, *_few(added_tokens, 40), "of", "and", "return", "self", "import", "Zeit", "être", "2024", "№"]
    texts = []
    for _ in range(count):
        pieces = []
        for _ in range(generator.randrange(1, 12)):
            kind = generator.random()
            if kind < 0.6:
                pieces.append(generator.choice(words))
            elif kind < 0.8:
                block = generator.choice(_SCRIPT_STARTS)
                pieces.append("".join(chr(block + generator.randrange(48)) for _ in range(generator.randrange(1, 6))))
            else:
                pieces.append("".join(generator.choices("abcdefghijklmnopqrstuvwxyzABC0123456789", k=5)))
            pieces.append(generator.choice(_SPACES) * generator.choice((1, 1, 1, 2, 5)))
        texts.append("".join(pieces))
    return texts


#: First characters of blocks of 48 in scripts with rules of their own.
_SCRIPT_STARTS = (
    0x21, 0x41, 0xA1, 0xC0, 0x100, 0x300, 0x391, 0x410, 0x531, 0x5D0, 0x621, 0x905, 0x985, 0xE01, 0x10A0, 0x1100,
    0x13A0,
    0x1E00, 0x2010, 0x2070, 0x2100, 0x2150, 0x2190, 0x2460, 0x3041, 0x30A1, 0x4E00, 0xAC00, 0xFB00, 0xFF01, 0x1D400,
    0x1F1E6, 0x1F600, 0x20000,
)  # fmt: skip


def mark_pairs(seed: int, count: int) -> list[str]:
    """Return letters under random pairs of combining marks: their order is what normalizers disagree on."""
    generator = Random(f"marks/{seed}")
    marks = _combining_marks()
    return ["".join(("a", generator.choice(marks), generator.choice(marks), " b")) for _ in range(count)]


@cache
def _combining_marks() -> tuple[str, ...]:
    return tuple(chr(code) for code in range(0x110000) if unicodedata.combining(chr(code)))


@cache
def sweep_code_points() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """int32 [code points]: all assigned ones, all others of the first two planes, and a sample of the rest.

    The unassigned ones count since libraries follow different versions of Unicode: what is unassigned here is a
    letter in one and not in the other. Private planes and surrogates are left out.
    """
    tried = [
        code
        for code in range(0xF0000)
        if not 0xD800 <= code < 0xE000
        and (code < 0x20000 or code % _UNASSIGNED_STRIDE == 0 or unicodedata.category(chr(code)) != "Cn")
    ]
    return np.array(tried, np.int32)


def sweep_texts(code_points: Iterable[int]) -> list[str]:
    """Return texts that show each character between letters, digits, spaces, doubled and before an ending."""
    shown = [_shown(code) for code in code_points]
    return ["".join(shown[start : start + SWEEP_WIDTH]) for start in range(0, len(shown), SWEEP_WIDTH)]


def _shown(code: int) -> str:
    character = chr(code)
    return f"a{character}1{character}{character} {character}'s\n"


def _few(tokens: Sequence[str], most: int) -> list[str]:
    """At most so many, from all over: files with thousands of reserved tokens would drown the rest."""
    stride = max(1, len(tokens) // most)
    return [token for token in tokens[::stride] if token]
