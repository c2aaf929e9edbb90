"""Waiting for the name of the host where all meet, and the frame that shows when hosts have diverged."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from tpuworker.errors import RetryError

#: How long hosts of one job may start apart: pulling an image of some GB on a fresh node takes minutes.
START_TIMEOUT_SECONDS = 900
_FIRST_WAIT_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 5.0


def wait_for_name(
    host: str,
    port: int,
    *,
    timeout_seconds: float = START_TIMEOUT_SECONDS,
    resolve: Callable[[str, int], object] = socket.getaddrinfo,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once a name resolves; JobSet's service knows a pod a little after it has started.

    Raises:
        RetryError: It does not within the time.
    """
    waited, pause = 0.0, _FIRST_WAIT_SECONDS
    while True:
        try:
            resolve(host, port)
        except OSError as error:
            if waited >= timeout_seconds:
                raise RetryError(
                    f"the coordinator {host} has no address after {waited:.0f} s ({error}): host 0 of slice 0 has not "
                    "started, or network.enableDNSHostnames of the JobSet is off"
                ) from error
        else:
            return
        sleep(pause)
        waited += pause
        pause = min(2 * pause, _LONGEST_WAIT_SECONDS)


def frame(tag: str, payload: bytes) -> bytes:
    """Return a payload with its tag in front."""
    name = tag.encode()
    return struct.pack("<HQ", len(name), len(payload)) + name + payload


def unframe(tag: str, framed: bytes, host: int) -> bytes:
    """Return the payload that a host gave, cut to its own length.

    Raises:
        RuntimeError: It was given under another tag.
    """
    name_bytes, payload_bytes = struct.unpack_from("<HQ", framed)
    start = struct.calcsize("<HQ")
    name = framed[start : start + name_bytes].decode()
    if name != tag:
        raise RuntimeError(f"hosts have diverged: this host exchanges {tag!r}, host rank {host} exchanges {name!r}")
    return framed[start + name_bytes : start + name_bytes + payload_bytes]


def padded_length(length: int) -> int:
    """Return the next power of two (at least 256), so that exchanges of any length need few compiled programs."""
    return max(256, 1 << (length - 1).bit_length())
