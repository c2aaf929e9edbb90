"""Whoever raised it, a failure becomes one reason, one message and one exit code; a lost peer asks for a restart."""

from __future__ import annotations

import pytest

from tpuworker.backends.consensus import PeerError, describe
from tpuworker.errors import DataError, Fault, PreflightError, RetryError


class JaxRuntimeError(RuntimeError):
    """Named as JAX's own."""


def test_a_refusal_keeps_its_own_code() -> None:
    assert describe(PreflightError([Fault("a", "b", "c")])) == ("PreflightError", "a: found b; wanted c", 3)
    assert describe(RetryError("later"))[2] == 42
    assert describe(DataError([Fault("f", "x", "y")]))[2] == 1


def test_a_users_own_error_ends_with_one_and_says_where() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("mine")
    reason, message, code = describe(caught.value)
    assert (reason, code) == ("ValueError", 1)
    assert "'mine' (" in message
    assert "test_consensus.py" in message


def test_a_lost_peer_asks_for_a_restart() -> None:
    reason, message, code = describe(JaxRuntimeError("UNAVAILABLE: Socket closed"))
    assert (reason, code) == ("RetryError", 42)
    assert "a peer or the network was lost" in message


def test_another_hosts_failure_carries_its_host_reason_and_code() -> None:
    error = PeerError("1/0", "DataError", "part-3.parquet is cut off", 1)
    assert describe(error) == ("DataError", "host 1/0: DataError: part-3.parquet is cut off", 1)
