"""What looks like a secret in a document, so that none is written into an object that many people can read.

The spec's text travels in an annotation and its variables in the pod: whoever may read JobSets reads both. A value that
must stay secret belongs into a Kubernetes Secret; ``train.secrets`` names it. No message here repeats the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tpuworker.errors import Fault

#: Variable names that end so hold secrets as a rule.
_SENSITIVE_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE|AUTH)_?KEY(?:_ID)?)$",
    re.IGNORECASE,
)
#: Names that end so and are words of the vocabulary, or switches.
_VOCABULARY = re.compile(r"(?:^|_)(?:PAD|EOS|BOS|UNK|SEP|CLS|MASK|END|START)_TOKEN$", re.IGNORECASE)
#: Values that no secret has: empty, a switch, a number, a path, a token of a vocabulary, a variable.
_HARMLESS = re.compile(
    r"|true|false|yes|no|on|off|none|\d{1,6}|\.{0,2}/.*|gs://[^@]*|<.*>|\[.*\]|\$.*", re.IGNORECASE | re.DOTALL
)
#: Forms that issuers give their secrets, with the issuer's name.
_FORMS = (
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}")),
    ("a Google API key", re.compile(r"\bAIza[A-Za-z0-9_-]{35}")),
    ("an AWS access key", re.compile(r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b")),
    ("an API key", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("a Slack token", re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a signed token (JWT)", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")),
    ("a password in a URL", re.compile(r"\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)),
)
_VARIABLES = ("spec", "train", "env")
_ARGUMENTS = ("spec", "train", "args")
_COMMAND = ("spec", "train", "command")
#: ``--api-key``, and ``--api-key=VALUE`` or ``API_KEY=VALUE``.
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)")
_ASSIGNMENT = re.compile(r"(?:--?)?([A-Za-z][\w-]*)=(.*)", re.DOTALL)


def looks_sensitive(name: str) -> bool:
    """Say whether a variable of this name usually holds a secret."""
    return bool(_SENSITIVE_NAME.search(name)) and not _VOCABULARY.search(name)


def secret_form(text: str) -> str | None:
    """Return in words what kind of secret a text contains, or None."""
    return next((words for words, form in _FORMS if form.search(text)), None)


def find_secrets(document: Any) -> Iterator[tuple[tuple[str | int, ...], Fault]]:
    """Yield every secret written out in a document, with its path; the fault has no line yet.

    Args:
        document: The document as mappings, lists and scalars.
    """
    before: tuple[tuple[str | int, ...], str] = ((), "")
    for path, text in _strings(document, ()):
        name, value = _named(path, text, *before)
        before = path, text
        form = secret_form(text)
        if form is None and (not looks_sensitive(name) or _HARMLESS.fullmatch(value)):
            continue
        found = form or "a value that its name calls a secret"
        wanted = "a reference, since everybody who can read the JobSet would read the value"
        yield path, Fault(".".join(map(str, path)), found, wanted, _remedy(name if path[:-1] == _VARIABLES else ""))


def _named(
    path: tuple[str | int, ...], text: str, path_before: tuple[str | int, ...], text_before: str
) -> tuple[str, str]:
    """Return the name under which a text is handed to the training code, and its value; no name elsewhere."""
    if path[:-1] == _VARIABLES or path[:3] == _ARGUMENTS:
        return str(path[-1]), text
    if path[:-1] != _COMMAND:
        return "", text
    if assignment := _ASSIGNMENT.fullmatch(text):
        return assignment[1].replace("-", "_"), assignment[2]
    option = _OPTION.fullmatch(text_before) if path_before[:-1] == _COMMAND else None
    return (option[1].replace("-", "_"), text) if option and not text.startswith("-") else ("", text)


def secrets_in_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the one-based line and the kind of each recognisable secret of a text, comments included."""
    for number, line in enumerate(text.splitlines(), start=1):
        if form := secret_form(line):
            yield number, form


def _remedy(variable: str) -> str:
    if not variable:
        return "remove it; the job's service account, or a variable under spec.train.secrets, gives the right instead"
    return (
        f"write under spec.train: secrets: {{{variable}: {{secret: SECRET, key: KEY}}}} and make it with "
        f"kubectl create secret generic SECRET --from-file=KEY=FILE"
    )


def _strings(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, (*path, index))
