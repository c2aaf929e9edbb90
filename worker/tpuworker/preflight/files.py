"""Whether all hosts read the same bytes: host 0 alone makes the index, and other hosts' copies could differ."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tpuworker.backends import Backend
from tpuworker.errors import Fault
from tpuworker.identity import Identity
from tpuworker.preflight.agreement import disagreements
from tpuworker.storage import FileInfo, is_remote

#: Bytes that a host reads in all: a second from a disk, and bearable for a thousand hosts on one mount. Each file gets
#: an equal share, and one that is no larger is read whole.
_BUDGET_BYTES = 128 << 20
#: Least share of a file: with 100,000 files 1.6 GB, which the time ends if a mount is slow.
_LEAST_BYTES = 16 << 10
#: Of what is larger than its share, blocks: at both ends, and as many between as the share allows.
_BLOCK_BYTES, _SMALL_BLOCK_BYTES = 64 << 10, 4 << 10
_LIMIT_SECONDS = 20.0
_THREADS = 16
_FILES_AT_ONCE = 1024
_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Compared:
    """What comparing gave; the same on all hosts.

    Attributes:
        num_files: Local files of the index.
        num_compared: Files that all hosts have looked at within the time.
        faults: The first file, by name, that differs, with hosts and values; empty if none does.
    """

    num_files: int
    num_compared: int
    faults: tuple[Fault, ...] = ()


def compare_files(
    files: Sequence[FileInfo], backend: Backend, identity: Identity, *, limit_seconds: float = _LIMIT_SECONDS
) -> Compared:
    """Compare what every host finds under the local paths of the index: sizes and bytes, since times differ in copies.

    Remote files are left out: their listing is one for all hosts, and names the version of every object.

    Args:
        files: Of the index, the same on all hosts.
        backend: Started.
        identity: This host.
        limit_seconds: When to stop looking; the files after that, in an order drawn by lot, are not compared.
    """
    paths = sorted({file.url.removeprefix("file://") for file in files if not is_remote(file.url)})
    if not paths or identity.num_hosts == 1:
        return Compared(len(paths), len(paths))
    drawn = list(range(len(paths)))
    random.Random(0).shuffle(drawn)
    share = max(_LEAST_BYTES, _BUDGET_BYTES // len(paths))
    mine = _digests([paths[number] for number in drawn], share, limit_seconds)
    first = _split(backend.broadcast("data files", b"".join(mine) if identity.host_rank == 0 else None))
    pairs = zip(drawn, mine, first, strict=False)  # as many as both hosts have looked at
    differing = [number for number, own, other in pairs if own != other]
    report = [min(len(mine), len(first)), len(differing), min(differing, default=len(paths))]
    told = [json.loads(each) for each in backend.exchange("differing files", json.dumps(report).encode())]
    num_compared = min(seen for seen, _, _ in told)
    lowest = min(number for _, _, number in told)
    if lowest == len(paths):
        return Compared(len(paths), num_compared)
    words = backend.exchange("differing file", _describe(paths[lowest], share).encode())
    labels = [identity.label_of(rank) for rank in range(identity.num_hosts)]
    faults = disagreements([{f"file {paths[lowest]}": each.decode()} for each in words], labels)
    most = max(count for _, count, _ in told)
    if most > 1:
        faults.append(Fault("data files", f"{most:,} of {num_compared:,} that differ from host 0's", "none"))
    return Compared(len(paths), num_compared, tuple(faults))


def _digests(paths: Sequence[str], share: int, limit_seconds: float) -> list[bytes]:
    deadline = time.monotonic() + limit_seconds
    digests: list[bytes] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="files") as pool:
        for start in range(0, len(paths), _FILES_AT_ONCE):
            digests += pool.map(lambda path: _digest(path, share)[1], paths[start : start + _FILES_AT_ONCE])
            if time.monotonic() > deadline:
                break
    return digests


def _digest(path: str, share: int) -> tuple[int, bytes]:
    """Return size and digest of a file; -1 and the digest of the reason if it cannot be read."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    try:
        with Path(path).open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(size.to_bytes(8, "little"))
            for start, stop in blocks(size, share):
                digest.update(os.pread(file.fileno(), stop - start, start))
    except OSError as error:
        return -1, hashlib.blake2b(str(error.strerror).encode(), digest_size=_DIGEST_BYTES).digest()
    return size, digest.digest()


def blocks(size_bytes: int, share_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the spans [start, stop) of a file that are looked at.

    Args:
        size_bytes: Size of the file.
        share_bytes: What may be read of it, at least two blocks.
    """
    if size_bytes <= share_bytes:
        yield 0, size_bytes
        return
    length = _BLOCK_BYTES if share_bytes >= 16 * _BLOCK_BYTES else _SMALL_BLOCK_BYTES
    count = share_bytes // length
    for number in range(count):
        start = number * (size_bytes - length) // (count - 1)
        yield start, start + length


def _describe(path: str, share: int) -> str:
    size, digest = _digest(path, share)
    if size >= 0:
        return f"{size:,} bytes with digest {digest.hex()}"
    return "no such file" if not Path(path).exists() else "a file that cannot be read"


def _split(joined: bytes) -> list[bytes]:
    return [joined[start : start + _DIGEST_BYTES] for start in range(0, len(joined), _DIGEST_BYTES)]
