"""Secrets kept out of what is printed: values of sensitive names, tokens by their form, passwords in URLs."""

from __future__ import annotations

import re
from typing import Any

from tpuworker.spec.secret_values import looks_sensitive

MASK = "***"

#: Names that hold secrets besides those that a spec may not write out.
_MORE_NAMES = re.compile(r"(?:^|[_.-])(?:AUTH|AUTHORIZATION|COOKIE|DSN|PASSPHRASE|PASSWORD|PWD|TOKEN)$", re.IGNORECASE)
_VOCABULARY = re.compile(r"(?:PAD|EOS|BOS|UNK|SEP|CLS|MASK|END|START)_TOKEN$", re.IGNORECASE)
#: Secrets that show by their form: Hugging Face, GitHub, OpenAI-like, Google, AWS, Slack, JSON Web Tokens, PEM.
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_-]{16,}|ya29\.[\w.-]{20,}|"
    r"AIza[\w-]{30,}|AKIA[A-Z0-9]{16}|xox[abpr]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://)([^/\s:@]*):([^/\s@]+)@", re.IGNORECASE)
#: ``NAME: value`` and ``NAME=value`` in a text, such as the spec's; a mapping's braces and a comment end the value.
_ASSIGNMENT = re.compile(
    r"""(?m)(["']?)\b([A-Za-z_][A-Za-z0-9_.-]*)\1(\s*[:=]\s*)("[^"\n]*"|'[^'\n]*'|[^\s{}\[\],#"'][^\n,}#]*)"""
)


def is_sensitive_name(name: str) -> bool:
    """Say whether a variable's name says that its value is a secret."""
    return looks_sensitive(name) or (bool(_MORE_NAMES.search(name)) and not _VOCABULARY.search(name))


def looks_secret(value: str) -> bool:
    """Say whether a value is a secret by its form, whatever its name."""
    return _TOKEN.search(value) is not None or _URL_PASSWORD.search(value) is not None


def mask_text(text: str) -> str:
    """Return a text with its secrets masked; all else stays byte for byte."""
    masked = _ASSIGNMENT.sub(_mask_assignment, text)
    masked = _URL_PASSWORD.sub(rf"\1\2:{MASK}@", masked)
    return _TOKEN.sub(MASK, masked)


def _mask_assignment(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{found[1]}{found[3]}{MASK}" if is_sensitive_name(found[2]) else found[0]


def mask_object(value: Any) -> Any:
    """Return an object with its secrets masked: ``{name, value}`` pairs, keys, and texts anywhere in it."""
    if isinstance(value, dict):
        name = value.get("name")
        is_secret_variable = isinstance(name, str) and is_sensitive_name(name) and isinstance(value.get("value"), str)
        return {
            key: MASK
            if (key == "value" and is_secret_variable) or (isinstance(item, str) and is_sensitive_name(key))
            else mask_object(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask_object(item) for item in value]
    return mask_text(value) if isinstance(value, str) else value
