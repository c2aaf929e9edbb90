"""How hosts fail and stop together: an error of one becomes everybody's, at the same place of the program."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import TypeVar

from tpuworker.backends import Backend
from tpuworker.backends.failures import is_peer_failure
from tpuworker.errors import EXIT_ERROR, EXIT_OK, RetryError, WorkerError
from tpuworker.identity import Identity

Result = TypeVar("Result")


class PeerError(WorkerError):
    """Another host failed, and this one stops with it; carries that host's message and exit code."""

    def __init__(self, host: str, reason: str, message: str, exit_code: int) -> None:
        self.host = host
        self._reason = reason
        self.exit_code = exit_code  # type: ignore[misc] # of the one error that is handed around
        super().__init__(f"host {host}: {reason}: {message}")

    @property
    def reason(self) -> str:
        """The class of the first failure."""
        return self._reason


def together(backend: Backend, identity: Identity, what: str, action: Callable[[], Result]) -> Result:
    """Do something on every host and go on only if it went well on all of them.

    Args:
        backend: How hosts talk.
        identity: This host.
        what: Name of the step, the same on all hosts.
        action: What to do here.

    Raises:
        PeerError: It failed elsewhere; the first host by rank is named.
        Exception: Whatever ``action`` raised here, if no host before this one failed.
    """
    failure: Exception | None = None
    result: Result | None = None
    try:
        result = action()
    except Exception as error:
        if is_peer_failure(error):
            raise  # those that could be told are gone
        failure = error
    settle(backend, identity, what, failure)
    return result  # type: ignore[return-value] # settle has raised if there is none


def settle(backend: Backend, identity: Identity, what: str, failure: Exception | None) -> None:
    """Tell every host how it went here and raise the first failure, by rank, on all of them.

    Raises:
        PeerError: As :func:`together`.
        Exception: ``failure`` itself, on the host where it happened first.
    """
    words = b"" if failure is None else to_words(failure, identity.host_rank)
    told = backend.exchange(f"settle {what}", words)
    first = next((rank for rank, words in enumerate(told) if words), None)
    if first is None:
        return
    if first == identity.host_rank and failure is not None:
        raise failure
    raise from_words(told[first], identity) from failure


def describe(error: BaseException) -> tuple[str, str, int]:
    """Return reason, message and exit code of a failure, whoever raised it."""
    if isinstance(error, WorkerError):
        return error.reason, str(error), error.exit_code
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else EXIT_OK if error.code is None else EXIT_ERROR
        return "SystemExit" if code else "", f"training code ended the process with {error.code!r}", code
    if is_peer_failure(error):
        message = f"a peer or the network was lost: {type(error).__name__}: {str(error).strip()}"
        return RetryError.__name__, message, RetryError.exit_code
    at = traceback.extract_tb(error.__traceback__)
    place = f" ({at[-1].filename}:{at[-1].lineno})" if at else ""
    return type(error).__name__, f"{error}{place}", EXIT_ERROR


def to_words(error: BaseException, host_rank: int) -> bytes:
    """Return a failure of a host as bytes for the others."""
    reason, message, exit_code = describe(error)
    words = {"rank": host_rank, "reason": reason, "message": message[:3000], "exit_code": exit_code}
    return json.dumps(words).encode()


def from_words(words: bytes, identity: Identity) -> PeerError:
    """Return the failure that :func:`to_words` described on another host."""
    said = json.loads(words)
    return PeerError(identity.label_of(said["rank"]), said["reason"], said["message"], said["exit_code"])
