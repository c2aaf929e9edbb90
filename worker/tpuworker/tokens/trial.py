"""The trial of one engine: its ids against the reference's on every kind of text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tpuworker.tokens import trials
from tpuworker.tokens.engine import Encoded, Engine, Int64s, concatenate
from tpuworker.tokens.verdict import Mismatch, merge_runs

#: If more of the swept characters differ, the engine is not one with a few odd ones: it is wrong.
MOST_DIVERGENT = 20_000


@dataclass(frozen=True)
class Effort:
    """How much is tried. The defaults take about 5 s on two processors with a vocabulary of 32,000.

    Attributes:
        random_texts: Random mixes.
        mark_pairs: Pairs of combining marks, where the file has a normalizer.
        long_text_bytes: Size of the one long text.
        one_character_of: Every so-manieth character of the sweep is tried.
    """

    random_texts: int = 4000
    mark_pairs: int = 4000
    long_text_bytes: int = 5_000_000
    one_character_of: int = 1


@dataclass(frozen=True)
class Finding:
    """What a trial found.

    Attributes:
        num_trials: Texts compared.
        mismatch: A difference that is no matter of single characters: the engine is rejected.
        divergent: Runs of code points that differ.
    """

    num_trials: int
    mismatch: Mismatch | None = None
    divergent: tuple[tuple[int, int], ...] = ()


def try_samples(
    engine: Engine, reference: Engine, samples: Sequence[str], divergent: Sequence[tuple[int, int]]
) -> Finding:
    """Compare on the user's own texts, in one call as large as in earnest. Never skipped, whatever is remembered.

    Args:
        engine: The engine.
        reference: The reference.
        samples: Texts of the user's data.
        divergent: Runs of code points known to differ; texts with them do not count.
    """
    counted = [text for text in samples if not _holds(text, divergent)]
    return Finding(len(counted), _first_mismatch(engine, reference, counted))


def try_everything(
    engine: Engine,
    reference: Engine,
    tokenizer_json: str,
    samples: Sequence[str],
    *,
    seed: int,
    effort: Effort,
) -> Finding:
    """Compare on nasty texts, random ones, pairs of marks, all characters, and one long text, twice.

    Args:
        engine: The engine, with the threads it will have.
        reference: The reference.
        tokenizer_json: Text of the file; its added tokens and normalizer decide what is tried.
        samples: Texts the long one is made of.
        seed: Of the random texts. Another for each start, so that starts add up.
        effort: How much is tried.
    """
    content = json.loads(tokenizer_json)
    added = [token["content"] for token in content.get("added_tokens") or ()]
    # One text keeps one processor of the reference busy for seconds; all else is tried on the others meanwhile.
    with ThreadPoolExecutor(1, thread_name_prefix="try-long") as aside:
        long_text = _long_text(samples, (), effort.long_text_bytes)
        coming = aside.submit(reference.encode, [long_text])
        swept = trials.sweep_code_points()[:: effort.one_character_of].tolist()
        odd = _odd_characters(engine, reference, swept)
        if len(odd) > MOST_DIVERGENT:
            mismatch = _first_mismatch(engine, reference, trials.sweep_texts(odd[: trials.SWEEP_WIDTH]))
            return Finding(len(swept), mismatch)
        divergent = merge_runs([(code, code) for code in odd])
        texts = [*trials.nasty_texts(added), *trials.random_texts(seed, effort.random_texts, added)]
        if content.get("normalizer"):
            texts += trials.mark_pairs(seed, effort.mark_pairs)
        texts = [text for text in texts if not _holds(text, divergent)]
        wanted = reference.encode(texts)
        if _holds(long_text, divergent):
            long_text = _long_text(samples, divergent, effort.long_text_bytes)
            coming = aside.submit(reference.encode, [long_text])
        texts.append(long_text)
        wanted = concatenate([wanted, coming.result()])

    found = engine.encode(texts)
    mismatch = _mismatch_among(engine, reference, texts, differing(found, wanted))
    if mismatch is None and _digest(found) != _digest(engine.encode(texts)):
        mismatch = Mismatch("the same texts twice", (), ())
    return Finding(len(texts) + len(swept), mismatch, divergent)


def differing(engine: Encoded, reference: Encoded) -> Int64s:
    """Return the places of texts whose ids differ."""
    if np.array_equal(engine.offsets, reference.offsets) and np.array_equal(engine.ids, reference.ids):
        return np.zeros(0, np.int64)
    places = [
        place
        for place in range(reference.num_texts)
        if not np.array_equal(
            engine.ids[engine.offsets[place] : engine.offsets[place + 1]],
            reference.ids[reference.offsets[place] : reference.offsets[place + 1]],
        )
    ]
    return np.array(places, np.int64)


def smallest_mismatch(engine: Engine, reference: Engine, text: str) -> Mismatch:
    """Return the shortest part of a text, found by halving and trimming, on which the two still differ."""

    def differs(part: str) -> bool:
        return len(differing(engine.encode([part]), reference.encode([part]))) > 0

    small = _shrink(text, differs)
    wanted, found = reference.encode([small]).ids, engine.encode([small]).ids
    return Mismatch(small[:200], tuple(wanted[:32].tolist()), tuple(found[:32].tolist()))


def _shrink(text: str, differs: Callable[[str], bool]) -> str:
    step = len(text) // 2
    while step:
        start = 0
        while start < len(text):
            shorter = text[:start] + text[start + step :]
            if shorter and differs(shorter):
                text = shorter
            else:
                start += step
        step = min(step, len(text)) // 2
    return text


def _first_mismatch(engine: Engine, reference: Engine, texts: Sequence[str]) -> Mismatch | None:
    return _mismatch_among(engine, reference, texts, differing(engine.encode(texts), reference.encode(texts)))


def _mismatch_among(engine: Engine, reference: Engine, texts: Sequence[str], places: Int64s) -> Mismatch | None:
    """Return the smallest difference in the shortest of the texts that differ, or None if none does."""
    if not len(places):
        return None
    shortest = min((texts[place] for place in places), key=len)
    return smallest_mismatch(engine, reference, shortest)


def _odd_characters(engine: Engine, reference: Engine, swept: list[int]) -> list[int]:
    """Return the swept characters that differ, and all their neighbours that do, as long as new ones turn up."""
    odd = _odd_among(engine, reference, swept)
    known = set(swept)
    blocks = {code >> 8 for code in odd}
    while blocks and len(odd) <= MOST_DIVERGENT:
        near = sorted({block + shift for block in blocks for shift in (-1, 0, 1) if 0 <= block + shift < 0x1100})
        left = [code for block in near for code in range(block << 8, (block + 1) << 8) if code not in known]
        left = [code for code in left if not 0xD800 <= code < 0xE000]
        known.update(left)
        more = _odd_among(engine, reference, left)
        odd += more
        blocks = {code >> 8 for code in more}
    return sorted(odd)


def _odd_among(engine: Engine, reference: Engine, code_points: list[int]) -> list[int]:
    texts = trials.sweep_texts(code_points)
    places = differing(engine.encode(texts), reference.encode(texts))
    width = trials.SWEEP_WIDTH
    suspects = [code for place in places.tolist() for code in code_points[place * width : (place + 1) * width]]
    alone = [text for code in suspects for text in trials.sweep_texts([code])]
    if not alone:
        return []
    differ = set(differing(engine.encode(alone), reference.encode(alone)).tolist())
    odd = []
    for start in range(0, len(suspects), width):
        mine = [suspects[place] for place in range(start, min(start + width, len(suspects))) if place in differ]
        # Characters that differ only beside each other cannot be told by looking at one: then all of them are odd.
        odd += mine or suspects[start : start + width]
    return odd


def _long_text(samples: Sequence[str], divergent: Sequence[tuple[int, int]], num_bytes: int) -> str:
    pool = [text for text in samples if text and not _holds(text, divergent)] or ["A long text of one sentence. "]
    parts: list[str] = []
    size = 0
    while size < num_bytes:
        for text in pool:
            parts.append(text)
            size += len(text)
            if size >= num_bytes:
                break
    return "".join(parts)[:num_bytes]


def _holds(text: str, runs: Sequence[tuple[int, int]]) -> bool:
    return (
        any(any(first <= ord(character) <= last for first, last in runs) for character in set(text)) if runs else False
    )


def _digest(encoded: Encoded) -> bytes:
    digest = hashlib.sha256(encoded.ids.tobytes())
    digest.update(encoded.offsets.tobytes())
    return digest.digest()
