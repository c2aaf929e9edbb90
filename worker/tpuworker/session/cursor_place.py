"""Proof that cursors can be written, and that whoever is host 0 after a restart will find them."""

from __future__ import annotations

import uuid

from tpuworker.data.cursor import Cursor
from tpuworker.data.job import Exchange, Together
from tpuworker.session.checkpoint import CursorStore


def proved(store: CursorStore, rank: int, exchange: Exchange, together: Together) -> tuple[int, ...]:
    """Return the ranks that do not see what host 0 writes; to be called on all hosts.

    Host 0 alone writes cursors, and reads them for all. It can be any machine after a restart, so a directory that
    only one machine has is as good as none.

    Args:
        store: The store of this host.
        rank: Rank of this host.
        exchange: All-gather among the hosts.
        together: Runs what can fail on every host and fails on all of them if it fails on one.

    Raises:
        DataError: The directory cannot be written.
    """
    sign = f".tpulaunch-{uuid.uuid4().hex}"
    sign = exchange("sign in the checkpoint directory", sign.encode())[0].decode()
    together("checkpoint directory", lambda: store.leave_sign(sign) if rank == 0 else None)
    told = exchange("sign is seen", b"1" if not store.is_local or store.sees_sign(sign) else b"")
    if rank == 0:
        store.remove_sign(sign)
    return tuple(number for number, sees in enumerate(told) if not sees)


def warnings(store: CursorStore, blind: tuple[int, ...], attempt: int, start: Cursor | None) -> tuple[str, ...]:
    """Return a sentence for each sign that a restart may begin at step 0.

    Args:
        store: Where cursors lie.
        blind: Ranks that do not see what host 0 writes.
        attempt: Restarts before this run.
        start: The cursor that was found.
    """
    remedy = "name a bucket, or mount one volume into all hosts"
    found = []
    if blind:
        found.append(
            f"spec.checkpoint.dir: hosts of rank {', '.join(map(str, blind))} do not see what host 0 writes to "
            f"{store.directory}; a restart with host 0 on another machine would begin at step 0: {remedy}"
        )
    if attempt and start is None:
        found.append(
            f"spec.checkpoint.dir: attempt {attempt} finds no cursor in {store.directory} and begins at step 0; "
            f"unless none was saved yet, {remedy}"
        )
    return tuple(found)
