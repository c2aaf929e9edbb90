"""Failed requests sorted by remedy: try again, it is not there, it is not allowed, it never will.

The libraries below fsspec disagree on how they say "too many requests": some raise their own class, some wrap it in
FileNotFoundError (fsspec's HTTP file system does so with every error of a size request). So the whole chain of causes
is read, and a transient cause anywhere in it wins over a FileNotFoundError on top.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tpuworker.errors import DataError, Fault, RetryError
from tpuworker.storage.redact import in_one_line, redact

Result = TypeVar("Result")

_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED_STATUS = frozenset({401, 403})
_MISSING_STATUS = frozenset({404, 410})
#: Classes of HTTP clients, by name: importing four clients to catch their errors would cost a second at start.
_TRANSIENT_NAMES = frozenset(
    {
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientConnectorDNSError",
        "ClientConnectorError",
        "ClientOSError",
        "ClientPayloadError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "EndpointConnectionError",
        "FSTimeoutError",
        "IncompleteRead",
        "IncompleteReadError",
        "NameResolutionError",
        "PoolTimeout",
        "ProtocolError",
        "ReadError",
        "ReadTimeout",
        "ReadTimeoutError",
        "RemoteProtocolError",
        "ResponseStreamingError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "SocketTimeoutError",
        "WriteError",
    }
)
_TRANSIENT_TYPES = (ConnectionError, TimeoutError, socket.gaierror, EOFError)
_TRANSIENT_CODES = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling"})


class Remedy(Enum):
    """What can cure a failed request."""

    RETRY = "retry"
    MISSING = "missing"
    DENIED = "denied"
    NEVER = "never"


class NotFoundError(DataError):
    """What was asked for is not there; asking again will not change it."""


class UnavailableError(RetryError):
    """The storage kept failing until the retries were used up; the same job started again can succeed."""


class IncompleteBodyError(OSError):
    """A server closed the connection before all the bytes it had announced."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a failed request is repeated.

    Attributes:
        attempts: Requests in all, the first included. Seven spread over about a minute outlive a quota window.
        first_seconds: Upper bound of the first pause.
        most_seconds: Upper bound of any pause.
    """

    attempts: int = 7
    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def pause_seconds(self, attempt: int, fraction: float) -> float:
        """Return the pause after failed attempt number ``attempt`` (from 0).

        Half of it is fixed and half is drawn, so that hosts that failed together do not return together.

        Args:
            attempt: Number of the attempt that failed.
            fraction: A draw from [0, 1).
        """
        bound = min(self.most_seconds, self.first_seconds * 2.0**attempt)
        return bound * (0.5 + 0.5 * fraction)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending.append(each.__cause__)
        pending.append(None if each.__suppress_context__ else each.__context__)


def _status(error: BaseException) -> int | None:
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    # One by one: aiohttp warns when anyone looks at its ``code``, gcsfs has nothing else.
    for holder, name in ((error, "status"), (error, "status_code"), (response, "status_code"), (error, "code")):
        text = str(getattr(holder, name, ""))
        if text.isdecimal() and 100 <= int(text) <= 599:
            return int(text)
    return response if isinstance(response, int) else None


def _code(error: BaseException) -> str:
    response: Any = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _is_transient(error: BaseException) -> bool:
    names = {each.__name__ for each in type(error).__mro__}
    return (
        _status(error) in _TRANSIENT_STATUS
        or _code(error) in _TRANSIENT_CODES
        or isinstance(error, (*_TRANSIENT_TYPES, IncompleteBodyError))
        or bool(names & _TRANSIENT_NAMES)
    )


def remedy(error: BaseException) -> Remedy:
    """Return what can cure a failed request, judged over its whole chain of causes."""
    chain = list(_chain(error))
    if any(_is_transient(each) for each in chain):
        return Remedy.RETRY
    statuses = {_status(each) for each in chain}
    if statuses & _DENIED_STATUS or any(isinstance(each, PermissionError) for each in chain):
        return Remedy.DENIED
    if statuses & _MISSING_STATUS or any(isinstance(each, FileNotFoundError) for each in chain):
        return Remedy.MISSING
    return Remedy.NEVER


def with_retries(
    action: Callable[[], Result],
    *,
    url: str,
    policy: RetryPolicy,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
) -> Result:
    """Return what ``action`` returns, repeating it while its failure is one that time cures.

    Args:
        action: The request. It must be safe to repeat.
        url: What is read, for messages; it is redacted.
        policy: How often and how long.
        sleep: Replaced by tests.
        draw: Source of jitter.

    Raises:
        NotFoundError: It is not there.
        DataError: It may not be read, or the failure is one that no repetition cures.
        UnavailableError: It still failed after ``policy.attempts`` requests.
    """
    for attempt in range(policy.attempts):
        try:
            return action()
        except Exception as error:
            cure = remedy(error)
            if cure is not Remedy.RETRY:
                raise _permanent(error, cure, url) from error
            if attempt + 1 == policy.attempts:
                raise UnavailableError(
                    f"{redact(url)}: gave up after {policy.attempts} requests; the last one failed with "
                    f"{in_one_line(error)}"
                ) from error
        sleep(policy.pause_seconds(attempt, draw()))
    raise ValueError(f"a retry policy needs at least one attempt, not {policy.attempts}")


def _permanent(error: Exception, cure: Remedy, url: str) -> DataError:
    place = redact(url)
    if isinstance(error, DataError):
        return error
    if cure is Remedy.MISSING:
        return NotFoundError([Fault(place, "nothing", "a file or object of this name", in_one_line(error))])
    if cure is Remedy.DENIED:
        hint = "give the pod's service account the right to read it, or the token that does"
        return DataError([Fault(place, f"no permission ({in_one_line(error)})", "a readable object", hint)])
    return DataError([Fault(place, in_one_line(error), "a readable object")])
