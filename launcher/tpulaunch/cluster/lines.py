"""From the bytes of a log stream to whole lines, each handed on once, across broken connections and cut characters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

#: A line longer than this is handed on in parts: a log without line ends must not fill the memory.
_LONGEST_LINE_BYTES = 16 * 1024 * 1024


class LineCutter:
    """Cuts chunks into lines at line feeds. Bytes are cut, not text, so a character may span two chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are whole with this chunk, without their line feed."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        yield from lines
        if len(self._rest) > _LONGEST_LINE_BYTES:
            yield self.rest()

    def rest(self) -> bytes:
        """Return the bytes after the last line feed, and forget them: a last line without one, often the crash."""
        rest, self._rest = self._rest, b""
        return rest


@dataclass(frozen=True)
class StampedLine:
    """One line of a log that was asked for with time stamps.

    Attributes:
        stamp_ns: When the container wrote it, in ns since the epoch; None if the line carries no stamp.
        text: The line, bytes that are no UTF-8 replaced.
    """

    stamp_ns: int | None
    text: str

    @classmethod
    def read(cls, line: bytes) -> StampedLine:
        """Return the line that the server wrote as ``STAMP TEXT``."""
        head, _, tail = line.partition(b" ")
        stamp = parse_stamp_ns(head.decode("ascii", "replace"))
        body = line if stamp is None else tail
        return cls(stamp, body.decode("utf-8", "replace"))

    @property
    def parts(self) -> list[str]:
        """The line cut at carriage returns: each state of a progress bar is a line of its own in a shared stream."""
        parts = [part for part in self.text.split("\r") if part]
        return parts or [""]


def parse_stamp_ns(text: str) -> int | None:
    """Return an RFC 3339 stamp with up to nine decimals in ns since the epoch, or None."""
    if len(text) < 20 or text[10:11] != "T":
        return None
    zone = next((at for at in range(19, len(text)) if text[at] in "Z+-"), None)
    if zone is None:
        return None
    fraction = text[20:zone] if text[19] == "." else ""
    if fraction and not fraction.isdecimal():
        return None
    try:
        moment = datetime.fromisoformat(text[:19] + text[zone:].replace("Z", "+00:00"))
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)


class Position:
    """How far a log has been read: enough to attach again without losing or repeating a line.

    The server can only be asked for whole seconds, and several lines may share one stamp; so what comes again is
    skipped up to the last stamp, and as many lines of that stamp as were handed on.
    """

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._num_at_last = 0
        self._to_skip: int | None = None

    @property
    def since(self) -> str | None:
        """The time to ask the server for, or None to ask for everything."""
        if self._last_ns is None:
            return None
        return datetime.fromtimestamp(self._last_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def attach(self) -> None:
        """Note that the server starts again from :attr:`since`."""
        self._to_skip = None if self._last_ns is None else self._num_at_last

    def take(self, line: StampedLine) -> bool:
        """Say whether a line is new, and count it if it is."""
        stamp = line.stamp_ns if line.stamp_ns is not None else self._last_ns
        if self._to_skip is not None and stamp is not None and self._last_ns is not None:
            if stamp < self._last_ns:
                return False
            if stamp == self._last_ns and self._to_skip > 0:
                self._to_skip -= 1
                return False
            self._to_skip = None
        if stamp == self._last_ns:
            self._num_at_last += 1
        else:
            self._last_ns, self._num_at_last = stamp, 1
        return True
