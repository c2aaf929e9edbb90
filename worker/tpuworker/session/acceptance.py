"""A change of the data that was accepted once: later attempts of the same submission have to find the same data."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tpuworker.data.cursor import Cursor
from tpuworker.errors import DataError
from tpuworker.session.checkpoint import CursorStore

_REMEDY = "it is not the change that was accepted: undo it, or submit --replace --accept-changed-data for this one too"


def accept(store: CursorStore | None, submission: str, start: Cursor, now: Cursor) -> None:
    """Let a change pass that nobody has accepted yet, and remember which it was; to be called on all hosts.

    ``--accept-changed-data`` stays in the job through all its restarts. Without a memory it would let in whatever
    happens to the files weeks later.

    Args:
        store: Where cursors lie, and the memory beside them; None on hosts that take host 0's word for it.
        submission: What the restarts of a job share and no other job has.
        start: The cursor that is resumed.
        now: What the job's data is.

    Raises:
        DataError: This submission has accepted other data than ``now``; with every difference to ``start``.
    """
    faults = start.check(now)
    if not faults or store is None:
        return
    found = hashlib.sha256(now.after(0).to_json().encode()).hexdigest()
    known = store.accepted_by(submission)
    if known is None:
        store.note_acceptance(submission, found)
    elif known != found:
        raise DataError([*faults[:-1], replace(faults[-1], hint=_REMEDY)])
