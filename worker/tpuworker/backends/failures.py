"""Which errors mean that another host or the network is lost, so that the same job started again can succeed."""

from __future__ import annotations

import re

#: Classes of JAX and torch that carry a status of the runtime below, by name since neither library is imported here.
_RUNTIME_CLASSES = frozenset(
    {"JaxRuntimeError", "XlaRuntimeError", "DistBackendError", "DistNetworkError", "DistError"}
)
#: Status codes that gRPC and XLA give when a peer or a connection is gone (never for a user's wrong shape or memory).
_LOST_STATUS = re.compile(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)\b")
_LOST_WORDS = re.compile(
    r"gloo.*(failed|timed? ?out|closed|reset|refused|broken)"
    r"|connection (closed by peer|reset by peer|refused)"
    r"|socket closed|broken pipe|heartbeat"
    r"|coordination service|another task died|megascale.*(timeout|unhealthy|error)"
    r"|(timed? ?out|timeout).*(rendezvous|store|barrier|clients joined)"
    r"|barrier.*(timed? ?out|error)",
    re.IGNORECASE | re.DOTALL,
)


def is_peer_failure(error: BaseException) -> bool:
    """Say whether an error, or one it was raised from, comes from a lost peer, connection or coordinator.

    A user's own error, a wrong shape and exhausted memory are none, whatever class carries them.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if _comes_from_runtime(current):
            return True
        current = current.__cause__ or current.__context__
    return False


def _comes_from_runtime(error: BaseException) -> bool:
    text = str(error)
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _RUNTIME_CLASSES:
        if "RESOURCE_EXHAUSTED" in text or "INVALID_ARGUMENT" in text:
            return False
        return bool(_LOST_STATUS.search(text) or _LOST_WORDS.search(text))
    # torch raises gloo's errors as plain RuntimeError, and JAX as ValueError where a program runs inside its call; the
    # path of gloo's source file gives them away.
    return type(error) in (RuntimeError, ValueError) and "/gloo/" in text and bool(_LOST_WORDS.search(text))
