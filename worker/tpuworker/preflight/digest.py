"""One hash of the global batches: it sees every token and the order of rows, and not the number of hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

_ROW_BYTES = 16


def row_digests(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return 16 bytes for each row of a host's batch, in row order.

    Args:
        arrays: By name, [rows_per_host, ...]; all of them count, their names too.
    """
    names = sorted(arrays)
    num_rows = len(arrays[names[0]])
    digests = []
    for row in range(num_rows):
        digest = hashlib.blake2b(digest_size=_ROW_BYTES)
        for name in names:
            digest.update(name.encode())
            digest.update(arrays[name][row].tobytes())
        digests.append(digest.digest())
    return b"".join(digests)


def global_digests(digests_of_hosts: Sequence[bytes], num_batches: int) -> tuple[str, ...]:
    """Return one hash for each global batch from what all hosts found.

    Args:
        digests_of_hosts: By rank: the row digests of all batches of that host, one batch after the other.
        num_batches: Batches; the same on all hosts.
    """
    batches = []
    for batch in range(num_batches):
        digest = hashlib.sha256()
        for digests in digests_of_hosts:
            share = len(digests) // num_batches
            digest.update(digests[batch * share : (batch + 1) * share])
        batches.append(digest.hexdigest()[:16])
    return tuple(batches)


def joined(batches: Sequence[str]) -> str:
    """Return one hash for a run of batches."""
    return hashlib.sha256("".join(batches).encode()).hexdigest()[:16]
