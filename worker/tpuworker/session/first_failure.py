"""The first failure of any host, posted where all look, so that it is in everybody's last words.

A training function that raises on one host leaves the others in a collective: they hang, or see a connection break, and
neither tells why. The failing host therefore posts its words before it ends. The others look every half second; they
get a moment to end by themselves, and are ended then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tpuworker.backends import Backend
from tpuworker.backends.consensus import PeerError, from_words, to_words
from tpuworker.identity import Identity

_NAME = "tpulaunch/first-failure"
_LOOK_SECONDS = 0.5
#: Time of a host that has heard of a failure to finish what it writes; most hang in a collective and never would.
_FINISH_SECONDS = 3.0
#: How long words may be on their way to a host that sees a connection break.
_HEAR_SECONDS = 2.0
#: How long host 0, which keeps what is posted, stays for the others: they look, finish, and speak.
_STAY_SECONDS = _LOOK_SECONDS + _FINISH_SECONDS + 2.0


class FirstFailure:
    """This host's ear and mouth.

    Args:
        backend: Started; it must not be the cause of a wait, so nothing here is a collective.
        identity: This host.
        on_failure: Called on a thread of its own with another host's failure; has to end the process.
    """

    def __init__(self, backend: Backend, identity: Identity, on_failure: Callable[[PeerError], None]) -> None:
        self._backend = backend
        self._identity = identity
        self._on_failure = on_failure
        if identity.num_hosts > 1:
            threading.Thread(target=self._watch, name="first-failure", daemon=True).start()

    def tell(self, error: BaseException) -> None:
        """Post the failure of this host, unless another was first."""
        self._backend.post(_NAME, to_words(error, self._identity.host_rank).decode())

    def heard(self, seconds: float = _HEAR_SECONDS) -> PeerError | None:
        """Return what another host has posted, waiting so long for it; None if nobody did."""
        deadline = time.monotonic() + seconds
        while (error := self._look()) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 5)
        return error

    def leave(self) -> None:
        """Say that this host has spoken; on host 0, return when all have, or after some seconds."""
        self._backend.post(self._spoken(self._identity.host_rank), "1")
        if self._identity.host_rank != 0:
            return
        deadline = time.monotonic() + _STAY_SECONDS
        silent = set(range(1, self._identity.num_hosts))
        while silent and time.monotonic() < deadline:
            silent = {rank for rank in silent if self._backend.posted(self._spoken(rank)) is None}
            time.sleep(_LOOK_SECONDS / 5)

    def _watch(self) -> None:
        while (error := self._look()) is None:
            time.sleep(_LOOK_SECONDS)
        time.sleep(_FINISH_SECONDS)
        self._on_failure(error)

    def _look(self) -> PeerError | None:
        words = self._backend.posted(_NAME)
        error = None if words is None else from_words(words.encode(), self._identity)
        return None if error is None or error.host == self._identity.label else error

    @staticmethod
    def _spoken(rank: int) -> str:
        return f"tpulaunch/spoken/{rank}"
