"""What the first bytes of a file say it is, in words for an error message."""

from __future__ import annotations

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "a parquet file"),
    (b"ARROW1", "an Arrow IPC file"),
    (b"\xff\xff\xff\xff", "an Arrow IPC stream"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself"),
    (b"\x89PNG", "a PNG image"),
    (b"%PDF", "a PDF"),
)
_MARKUP = (b"<!doctype", b"<html", b"<?xml")


def what_bytes_are(head: bytes) -> str:
    """Return what a file begins like.

    Args:
        head: Its first bytes; 32 are enough.
    """
    if not head:
        return "no bytes at all"
    for signature, words in _SIGNATURES:
        if head.startswith(signature):
            return words
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.lower().startswith(_MARKUP):
        return "a web page or XML"
    if start.startswith(b"{"):
        return "JSON text"
    if start.startswith(b"["):
        return "a JSON array"
    if b"\0" in head:
        return f"binary data that begins with {head[:8].hex(' ')}"
    return "plain text"
