"""Texts as engines take them: Arrow arrays to Python strings, cut into calls of equal work."""

from __future__ import annotations

from tpuworker.tokens.engine import Texts


def as_strings(texts: Texts) -> list[str]:
    """Return texts as a list of str; an Arrow array is decoded, a list is taken as it is."""
    if isinstance(texts, list):
        return texts
    if hasattr(texts, "to_pylist"):
        strings: list[str] = texts.to_pylist()
        return strings
    return list(texts)


def split_evenly(strings: list[str], *, min_parts: int, max_texts: int) -> list[list[str]]:
    """Cut texts into runs of about equal numbers of characters, so that threads end together.

    Args:
        strings: Texts, order kept.
        min_parts: Runs to make at least, if there are as many texts.
        max_texts: Most texts of a run.
    """
    if not strings:
        return []
    num_parts = max(min_parts, -(-len(strings) // max_texts))
    if num_parts == 1 or len(strings) == 1:
        return [strings]
    budget = sum(map(len, strings)) / num_parts
    parts: list[list[str]] = [[]]
    filled = 0
    for string in strings:
        if parts[-1] and (len(parts[-1]) == max_texts or filled + len(string) / 2 > budget * len(parts)):
            parts.append([])
        parts[-1].append(string)
        filled += len(string)
    return parts
