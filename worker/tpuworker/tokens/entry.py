"""One entry of the token cache as bytes: documents of one unit, checksummed, readable in place."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuworker.tokens.documents import BadRecord, Documents

#: Changes with the format; entries of another one are made anew.
MAGIC = b"TPUTOK01"
#: Magic, checksum of all that follows it, bytes of the description.
_HEAD = struct.Struct("<8sII")
#: Arrays begin at multiples of this, so that they can be used where they lie.
_ALIGNMENT = 64


class DamagedEntryError(Exception):
    """Bytes that are no whole entry of this format; ``str()`` says why."""


def entry_bytes(documents: Documents) -> bytes:
    """Return documents as an entry. Ids take two bytes each if all of them fit.

    Layout, little-endian: magic (8 bytes), CRC-32 of everything behind it (4), size of the description (4), the
    description (JSON), then at multiples of 64 bytes: offsets int64 [documents + 1] from 0, ids uint16 or int32
    [tokens], trainable bits [ceil(tokens / 8)] if there are any.
    """
    first, last = int(documents.offsets[0]), int(documents.offsets[-1])
    ids = documents.ids[first:last]
    kind: Any = np.uint16 if not len(ids) or (int(ids.max()) < 2**16 and int(ids.min()) >= 0) else np.int32
    description = {
        "documents": documents.num_documents,
        "tokens": last - first,
        "ids": np.dtype(kind).name,
        "trainable": documents.trainable is not None,
        "prefix": documents.prefix,
        "suffix": documents.suffix,
        "close_cut": documents.close_cut,
        "bad": [[record.row, record.reason, record.detail] for record in documents.bad],
        "unlearnable": documents.unlearnable,
    }
    parts = [json.dumps(description).encode("ascii")]
    size = _HEAD.size + len(parts[0])
    arrays: list[npt.NDArray[Any]] = [documents.offsets - first, ids.astype(kind)]
    if documents.trainable is not None:
        arrays.append(np.packbits(documents.trainable[first:last]))
    for array in arrays:
        padding = -size % _ALIGNMENT
        parts += [b"\0" * padding, array.tobytes()]
        size += padding + array.nbytes
    body = b"".join(parts)
    checked = struct.pack("<I", len(parts[0])) + body
    return MAGIC + struct.pack("<I", zlib.crc32(checked)) + checked


def read_entry(content: npt.NDArray[np.uint8], *, check: bool = True) -> Documents:
    """Return the documents of an entry; ids stay where they lie (``uint16`` ones, too: layouts widen them).

    Args:
        content: uint8 [bytes], a memory map for instance.
        check: Read every byte and compare the checksum.

    Raises:
        DamagedEntryError: It is not whole, was changed, or has another format.
    """
    if len(content) < _HEAD.size:
        raise DamagedEntryError(f"{len(content)} bytes")
    magic, checksum, size = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if magic != MAGIC:
        raise DamagedEntryError(f"begins with {magic!r}")
    if check and zlib.crc32(content[12:].data) != checksum:
        raise DamagedEntryError("the checksum differs")
    content = np.asarray(content)  # of a memory map the pages alone: its own slicing is Python
    description = json.loads(content[_HEAD.size : _HEAD.size + size].tobytes())
    at = _HEAD.size + size

    def take(count: int, kind: str) -> npt.NDArray[Any]:
        nonlocal at
        at += -at % _ALIGNMENT
        begin, at = at, at + count * np.dtype(kind).itemsize
        return content[begin:at].view(kind)

    tokens = description["tokens"]
    offsets = take(description["documents"] + 1, "int64")
    ids = take(tokens, description["ids"])
    trainable = None
    if description["trainable"]:
        trainable = np.unpackbits(take(-(-tokens // 8), "uint8"), count=tokens).view(np.bool_)
    return Documents(
        ids=ids,
        offsets=offsets,
        trainable=trainable,
        prefix=tuple(description["prefix"]),
        suffix=tuple(description["suffix"]),
        close_cut=description["close_cut"],
        bad=tuple(BadRecord(*record) for record in description["bad"]),
        unlearnable=tuple(description["unlearnable"]),
    )
