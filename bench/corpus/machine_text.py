"""Real text: the documentation and sources that lie on this machine, sampled the same way each time."""

from __future__ import annotations

import gzip
import hashlib
import os
import site
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.corpus.synthetic import document_sizes

#: Written for people; these are all taken before sources fill what is missing.
_PROSE = frozenset({".md", ".rst", ".txt", ".gz", ""})
_SOURCES = frozenset({".py", ".go"})
_FILE_BYTES = (400, 1_000_000)
#: Lines longer than this on average mean data or generated code.
_MOST_BYTES_PER_LINE = 250


def roots() -> list[Path]:
    """Return the places where installations keep documentation and sources, those that exist here."""
    go_modules = Path(os.environ.get("GOMODCACHE", Path.home() / "go" / "pkg" / "mod"))
    places = [
        *(Path(place) for place in site.getsitepackages()),
        Path(sysconfig.get_paths()["stdlib"]),
        go_modules,
        Path("/usr/local/go/src"),
        Path("/usr/share/doc"),
        Path("/usr/lib/python3/dist-packages"),
    ]
    return [place for place in places if place.is_dir()]


def machine_text(seed: int, num_bytes: int, places: list[Path] | None = None) -> Iterator[str]:
    """Yield documents of real text until about so many bytes are reached.

    Files are taken in the order of a hash of seed and path, prose before sources, each content once; a file is cut at
    line ends into documents of lognormal length. The same installation gives the same documents.
    """
    made = 0
    seen: set[bytes] = set()
    for endings in (_PROSE, _SOURCES):
        for path in _in_hash_order(seed, places or roots(), endings):
            text = _readable(path)
            if text is None:
                continue
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if digest in seen:
                continue
            seen.add(digest)
            for document in _cut(text, np.random.default_rng(int.from_bytes(digest[:8], "big"))):
                made += len(document.encode())
                yield document
                if made >= num_bytes:
                    return


def _in_hash_order(seed: int, places: list[Path], endings: frozenset[str]) -> list[Path]:
    found: list[tuple[bytes, str]] = []
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                if os.path.splitext(name)[1] in endings:  # noqa: PTH122  # half a million names: Path would take minutes
                    path = f"{folder}/{name}"
                    key = f"{seed}:{path.removeprefix(str(place))}".encode()
                    found.append((hashlib.blake2b(key, digest_size=8).digest(), path))
    return [Path(path) for _, path in sorted(found)]


def _readable(path: Path) -> str | None:
    """Return a file's text, or None if it is no text of a sensible size."""
    try:
        if path.is_symlink() or not _FILE_BYTES[0] <= path.stat().st_size <= _FILE_BYTES[1]:
            return None
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None
    if "\0" in text or len(content) > _MOST_BYTES_PER_LINE * (text.count("\n") + 1):
        return None
    return text


def _cut(text: str, rng: np.random.Generator) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    start = 0
    while start < len(lines):
        wanted = int(document_sizes(rng, 1)[0])
        end, size = start, 0
        while end < len(lines) and size < wanted:
            size += len(lines[end])
            end += 1
        yield "".join(lines[start:end])
        start = end
