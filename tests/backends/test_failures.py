"""A lost peer is told apart from a user's own error; the texts were recorded from killed peers on CPU."""

from __future__ import annotations

import pytest

from tpuworker.backends.failures import is_peer_failure
from tpuworker.backends.rendezvous import wait_for_name
from tpuworker.errors import RetryError


class JaxRuntimeError(RuntimeError):
    """Named as JAX's own."""


LOST = [
    JaxRuntimeError(
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error "
        "[127.0.0.1]:11413: Connection reset by peer"
    ),
    ValueError(
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
        "[127.0.0.1]:16607"
    ),
    JaxRuntimeError("UNAVAILABLE: Failed to send RPC to coordination service."),
    JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out. Id: start"),
    RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:7"),
    RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms"),
]
OWN = [
    ValueError("Connection reset by peer"),
    RuntimeError("shape mismatch"),
    JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate; the operation was CANCELLED"),
    JaxRuntimeError("INVALID_ARGUMENT: Executable expected shape"),
    JaxRuntimeError("INTERNAL: Mosaic failed to compile"),
    OSError("heartbeat"),
]


@pytest.mark.parametrize("error", LOST, ids=str)
def test_a_lost_peer_is_recognised(error: Exception) -> None:
    assert is_peer_failure(error)


@pytest.mark.parametrize("error", OWN, ids=repr)
def test_a_users_own_error_is_no_lost_peer(error: Exception) -> None:
    assert not is_peer_failure(error)


def test_an_error_raised_from_a_lost_peer_is_one() -> None:
    wrapped = KeyError("wrapped")
    wrapped.__cause__ = LOST[0]
    assert is_peer_failure(wrapped)


def test_a_name_that_appears_late_is_waited_for() -> None:
    answers = [OSError("unknown"), OSError("unknown"), None]
    pauses: list[float] = []

    def resolve(_host: str, _port: int) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    wait_for_name("tiny-slice-0-0.tiny", 1, resolve=resolve, sleep=pauses.append)
    assert answers == []
    assert len(pauses) == 2


def test_a_name_that_never_appears_is_given_up_for_a_restart() -> None:
    def resolve(_host: str, _port: int) -> None:
        raise OSError("unknown")

    with pytest.raises(RetryError, match=r"tiny-slice-0-0.tiny has no address after .*enableDNSHostnames"):
        wait_for_name("tiny-slice-0-0.tiny", 1, timeout_seconds=30, resolve=resolve, sleep=lambda _: None)
