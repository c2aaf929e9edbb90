"""Corpora from a seed: Latin-like text for speed, numbered rows for exactness, ideographs for the CJK family."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Lengths of documents in bytes: lognormal, as text on the web is.
_MEDIAN_BYTES = 1_500
_SIGMA = 1.0
LEAST_BYTES, MOST_BYTES = 50, 60_000
_VOCABULARY_WORDS = 20_000
_BLOCK_DOCUMENTS = 2_000

_ONSETS: tuple[str, ...] = (
    *"bcdfghjklmnprstvwz",
    "br",
    "ch",
    "cl",
    "dr",
    "fl",
    "gr",
    "kl",
    "pr",
    "sh",
    "sp",
    "st",
    "th",
    "tr",
)
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ie", "ou"]
_CODAS = ["", "", "", "n", "r", "s", "l", "t", "nd", "st", "ck", "m"]
_NUM_SYLLABLES = len(_ONSETS) * len(_VOWELS) * len(_CODAS)
#: One word in ten is not Latin; these are the alphabets it is spelt in.
_ALPHABETS = [range(0x0430, 0x0450), range(0x03B1, 0x03C9), range(0x05D0, 0x05EA), range(0x0905, 0x0939)]
_NON_LATIN_SHARE = 0.1

#: Rows of the seven files of the exactness corpus: 4,001 in all, from 5 to 1,900.
NUMBERED_ROWS = (5, 1_900, 37, 850, 9, 700, 500)
_NUMBER_DIGITS = 5


def document_sizes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return lengths of documents in bytes, int64 [count]."""
    sizes = np.exp(rng.normal(np.log(_MEDIAN_BYTES), _SIGMA, count))
    return np.clip(sizes, LEAST_BYTES, MOST_BYTES).astype(np.int64)


def latin_like(seed: int, num_bytes: int) -> Iterator[str]:
    """Yield documents of made-up words under Zipf's law until about so many bytes are reached."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(_vocabulary(rng), dtype=object)
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    yield from _documents(rng, vocabulary, weights / weights.sum(), num_bytes, joint=" ", bytes_per_word=7)


def ideographs(seed: int, num_bytes: int) -> Iterator[str]:
    """Yield documents of one to three common ideographs a word, without spaces, until about so many bytes."""
    rng = np.random.default_rng(seed)
    signs = [chr(0x4E00 + int(step)) for step in rng.choice(0x5200, 3_500, replace=False)]
    words = ["".join(rng.choice(signs, int(length))) for length in rng.integers(1, 4, _VOCABULARY_WORDS)]
    words[8], words[20], words[400] = "\uff0c", "\u3002", "\u3002\n"
    weights = 1 / np.arange(1, len(words) + 1) ** 0.9
    yield from _documents(
        rng, np.array(words, dtype=object), weights / weights.sum(), num_bytes, joint="", bytes_per_word=6
    )


def numbered_rows(seed: int) -> list[list[str]]:
    """Return the texts of the exactness corpus, file by file; each begins with the number of its row."""
    rng = np.random.default_rng(seed)
    words = _vocabulary(rng)
    files, number = [], 0
    for count in NUMBERED_ROWS:
        lengths = rng.integers(2, 30, count)
        files.append([_numbered(number + row, rng.choice(words[:500], length)) for row, length in enumerate(lengths)])
        number += count
    return files


def number_of(text: str) -> int:
    """Return the number a row of the exactness corpus begins with."""
    return int(text[:_NUMBER_DIGITS])


def _numbered(number: int, words: np.ndarray) -> str:
    return f"{number:0{_NUMBER_DIGITS}d} " + " ".join(words)


def _vocabulary(rng: np.random.Generator) -> list[str]:
    words: list[str] = []
    for rank in range(_VOCABULARY_WORDS):
        if rng.random() < _NON_LATIN_SHARE:
            letters = _ALPHABETS[int(rng.integers(len(_ALPHABETS)))]
            words.append("".join(chr(letters[int(step)]) for step in rng.integers(len(letters), size=4)))
            continue
        syllables = 1 + int(rng.integers(1 + min(2, rank // 200)))
        words.append("".join(_syllable(int(pick)) for pick in rng.integers(_NUM_SYLLABLES, size=syllables)))
    words[5], words[30] = ",", ".\n"
    return words


def _syllable(number: int) -> str:
    onset, number = number % len(_ONSETS), number // len(_ONSETS)
    vowel, coda = number % len(_VOWELS), number // len(_VOWELS)
    return _ONSETS[onset] + _VOWELS[vowel] + _CODAS[coda]


def _documents(
    rng: np.random.Generator,
    vocabulary: np.ndarray,
    weights: np.ndarray,
    num_bytes: int,
    *,
    joint: str,
    bytes_per_word: int,
) -> Iterator[str]:
    cumulative = np.cumsum(weights)
    made = 0
    while made < num_bytes:
        num_words = np.maximum(document_sizes(rng, _BLOCK_DOCUMENTS) // bytes_per_word, 5)
        picks = np.searchsorted(cumulative, rng.random(int(num_words.sum())))
        words = vocabulary[np.minimum(picks, len(vocabulary) - 1)]
        ends = np.cumsum(num_words)
        for start, end in zip(ends - num_words, ends, strict=True):
            text = str(joint.join(words[start:end]))
            made += len(text.encode())
            yield text
            if made >= num_bytes:
                return
