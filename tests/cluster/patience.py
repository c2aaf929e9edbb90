"""How long anything is waited for, in one place: as long as something moves, and never for ever.

A busy machine is no failure. A wait ends in one when what is looked at has stayed the same for long, or when it keeps
changing and never becomes right.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Nothing has moved for so long: it is stuck. Ten times what the slowest step took with a load of 15 on two cores.
STALLED_SECONDS = 180.0
#: A worker of the real image imports its libraries and compiles without a word.
SILENT_WORKER_SECONDS = 480.0
#: It moves and gets nowhere: a component that logs the same error again and again.
LIMIT_SECONDS = 1200.0
#: One request to the API server, and one program that is run to its end.
REQUEST_SECONDS = 60.0
COMMAND_SECONDS = 300.0
#: Unpacking an image of some GB.
IMPORT_SECONDS = 1800.0
#: A killed process that a kernel still holds; an orderly end.
END_SECONDS = 60.0


class Patience:
    """Runs out when nothing changes.

    Args:
        stalled_seconds: How long the same may be seen.
        limit_seconds: How long it may go on in all.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        stalled_seconds: float = STALLED_SECONDS,
        limit_seconds: float = LIMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stalled_seconds = stalled_seconds
        self._clock = clock
        self._end = clock() + max(limit_seconds, stalled_seconds)
        self._last_change = clock()
        self._seen: object = None

    def note(self, seen: object) -> None:
        """Remember what is seen now; anything but the same as before is progress."""
        if seen != self._seen:
            self._seen, self._last_change = seen, self._clock()

    @property
    def remaining_seconds(self) -> float:
        """How long to go on if nothing changes; 0 when it has run out."""
        now = self._clock()
        return max(0.0, min(self._last_change + self._stalled_seconds, self._end) - now)

    @property
    def words(self) -> str:
        """Why it has run out, for the message."""
        if self._clock() >= self._end:
            return "it kept changing until the end of all patience"
        return f"nothing changed for {self._stalled_seconds:g} s"
