"""What may be printed of a URL or of a library's error: never a credential."""

from __future__ import annotations

import re

_PATTERNS = (
    (re.compile(r"(?<=://)[^/\s@'\"]+@"), "***@"),
    (re.compile(r"\b(hf|ghp|gho|glpat)_[A-Za-z0-9]{6,}"), "***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+"), r"\1 ***"),
    (re.compile(r"\bAKIA[0-9A-Z]{12,}"), "***"),
    (
        re.compile(
            r"(?i)([?&;](?:[a-z0-9-]*(?:signature|token|credential|secret|password|api[-_]?key|access[-_]?key)[a-z0-9-]*"
            r"|sig|key|auth))=[^&\s'\"]*"
        ),
        r"\1=***",
    ),
    (re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?)[^'\"\s,}]+"), r"\1***"),
)


def redact(text: str) -> str:
    """Return ``text`` without user info of URLs, signed query values, bearer tokens and access keys.

    Args:
        text: A URL, or any message of a library.
    """
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def in_one_line(error: BaseException, limit: int = 300) -> str:
    """Return an exception as one redacted line: its class and the first ``limit`` characters of its words."""
    words = " ".join(str(error).split())
    cut = words if len(words) <= limit else words[: limit - 1] + "…"
    return redact(f"{type(error).__name__}: {cut}" if cut else type(error).__name__)
