"""Gzip and zstandard streams as plain bytes; a stream that ends before its end marker is named with its place."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal

from tpuworker.errors import Fault, InputError
from tpuworker.storage.sniff import what_bytes_are

Codec = Literal["gz", "zst"]
_CHUNK_BYTES = 1 << 20
_MAGIC: dict[str, bytes] = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}
_GZIP_CONTAINER = 16 + zlib.MAX_WBITS


def codec_of(name: str) -> Codec | None:
    """Return the compression that a file's name ends with, or None."""
    lowered = name.lower()
    if lowered.endswith((".gz", ".gzip")):
        return "gz"
    return "zst" if lowered.endswith((".zst", ".zstd")) else None


def plain_name(name: str) -> str:
    """Return a file's name without the ending of its compression."""
    return name.rsplit(".", 1)[0] if codec_of(name) else name


def _decompressor(codec: Codec) -> Any:
    if codec == "gz":
        return zlib.decompressobj(_GZIP_CONTAINER)
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def decompressed(stream: BinaryIO, codec: Codec, place: str) -> Iterator[bytes]:
    """Yield the plain bytes of a compressed stream; several members or frames follow each other.

    Args:
        stream: Compressed bytes, at their start.
        codec: How they are compressed.
        place: Name of the file, for messages.

    Raises:
        InputError: Not compressed that way, damaged, or cut off: with the byte where it was seen.
    """
    machine, read_bytes, pending = None, 0, b""
    while True:
        if not pending:
            pending = stream.read(_CHUNK_BYTES)
            read_bytes += len(pending)
        if not pending:
            break
        if machine is None:
            if read_bytes == len(pending) and not pending.startswith(_MAGIC[codec]):
                raise InputError([Fault(place, what_bytes_are(pending), f"{codec} data, as its name says")])
            machine = _decompressor(codec)
        try:
            plain = machine.decompress(pending)
        except Exception as error:  # zlib.error and zstandard.ZstdError share no base
            raise InputError(
                [Fault(place, f"damaged {codec} data within the first {read_bytes:,} bytes ({error})", "intact data")]
            ) from error
        if plain:
            yield plain
        pending = b""
        if machine.eof:
            pending = machine.unused_data.lstrip(b"\0") if codec == "gz" else machine.unused_data
            machine = None
    if machine is not None:
        found = f"the {codec} stream cut off at byte {read_bytes:,}, before its end marker"
        raise InputError([Fault(place, found, "a whole file", "fetch it again, or set on_bad_record to skip it")])
