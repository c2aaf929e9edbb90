"""Lines of text cut into units of about 8 MiB: what JSON lines and plain text share."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tpuworker.errors import Fault, InputError
from tpuworker.storage import FileInfo, Storage, redact, what_bytes_are

#: Part of the order's definition: another size would give another order.
UNIT_BYTES = 8 << 20
_LONGEST_LINE_BYTES = 256 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: After these a line may be blank though it is not empty.
_SUSPICIOUS = (b"\n\n", b"\n\r", b"\n ", b"\n\t")


@dataclass(frozen=True)
class Span:
    """Whole lines of a file's plain content.

    Attributes:
        start: First byte.
        stop: One past the last byte.
        rows: Lines that are not blank.
        data: The bytes.
    """

    start: int
    stop: int
    rows: int
    data: bytes


def count_rows(data: bytes) -> int:
    """Return the lines of ``data`` that hold anything but white space."""
    rows = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    if data.startswith((b"\n", b"\r", b" ", b"\t")) or any(pair in data for pair in _SUSPICIOUS):
        rows -= _blank_lines(data)
    return rows


def _blank_lines(data: bytes) -> int:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return sum(not line.strip() for line in lines)


def scan(storage: Storage, file: FileInfo, checksum: list[int]) -> Iterator[Span]:
    """Yield the spans of a file in order, each cut after a newline.

    Args:
        storage: How bytes are read.
        file: The file, compressed or not.
        checksum: One-element list that receives the CRC-32 of the plain content.

    Raises:
        InputError: No text but binary data, or a line over 256 MiB.
    """
    start, pending, size = 0, list[bytes](), 0
    checksum[:] = [0]
    for number, chunk in enumerate(storage.plain_chunks(file)):
        checksum[0] = zlib.crc32(chunk, checksum[0])
        if number == 0:
            if b"\0" in chunk[:1024]:
                raise InputError([Fault(redact(file.url), what_bytes_are(chunk[:32]), "lines of text")])
            if chunk.startswith(_BYTE_ORDER_MARK):
                chunk, start = chunk[3:], 3  # noqa: PLW2901
        pending.append(chunk)
        size += len(chunk)
        if size < UNIT_BYTES:
            continue
        data = b"".join(pending)
        cut = data.rfind(b"\n", 0, UNIT_BYTES) + 1 or data.find(b"\n") + 1
        while cut and len(data) >= UNIT_BYTES:
            yield Span(start, start + cut, count_rows(data[:cut]), data[:cut])
            start, data = start + cut, data[cut:]
            cut = data.rfind(b"\n", 0, UNIT_BYTES) + 1 or data.find(b"\n") + 1
        if len(data) > _LONGEST_LINE_BYTES:
            raise InputError([Fault(redact(file.url), f"a line over 256 MiB at byte {start:,}", "one row a line")])
        pending, size = [data], len(data)
    data = b"".join(pending)
    if data:
        yield Span(start, start + len(data), count_rows(data), data)
