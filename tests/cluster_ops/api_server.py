"""An HTTP server that speaks the API server's protocol for objects, watches and logs, under a test's control.

The sockets, chunks and broken connections are real; only what the objects and logs say is told by the test. It stands
in where no cluster can be made to do a thing at a given byte: end a stream, cut a character, lose a connection.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

from tpulaunch.cluster.api import Api
from tpulaunch.cluster.connection import open_api
from tpulaunch.cluster.kubeconfig import Flags, Target
from tpulaunch.cluster.objects import Object

COLLECTIONS = {"jobsets": "JobSet", "pods": "Pod"}
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@dataclass
class Log:
    """What one container has written.

    Attributes:
        entries: (nanoseconds after EPOCH, bytes) of each line; a line without its line feed is the last one.
        is_closed: Whether the container has ended.
        break_after: Bytes after which the next answers lose their connection, one for each answer.
        end_after: Bytes after which the next answers end as if the log had been rotated, one for each answer.
        chunk_bytes: Size of the chunks that are sent; None: a line at a time.
        refusals: (status, message) of the next answers.
    """

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    is_closed: bool = False
    break_after: list[int] = field(default_factory=list)
    end_after: list[int] = field(default_factory=list)
    chunk_bytes: int | None = None
    refusals: list[tuple[int, str]] = field(default_factory=list)
    num_requests: int = 0


class World:
    """The objects and logs; every change wakes the watches. ``refusals`` are the answers to the next lists."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1
        self.objects: dict[tuple[str, str], Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        self.logs: dict[tuple[str, bool], Log] = {}
        self.is_ending = False
        self.refusals: list[tuple[int, str]] = []

    def put(self, collection: str, obj: Object) -> None:
        """Add or change an object."""
        with self.changed:
            self.version += 1
            stored = json.loads(json.dumps(obj))
            stored["metadata"]["resourceVersion"] = str(self.version)
            key = (collection, stored["metadata"]["name"])
            kind = "MODIFIED" if key in self.objects else "ADDED"
            self.objects[key] = stored
            self.history.append((self.version, collection, kind, stored))
            self.changed.notify_all()

    def remove(self, collection: str, name: str) -> None:
        """Delete an object."""
        with self.changed:
            self.version += 1
            gone = self.objects.pop((collection, name))
            self.history.append((self.version, collection, "DELETED", gone))
            self.changed.notify_all()

    def log(self, pod: str, *, previous: bool = False) -> Log:
        """The log of a pod's worker."""
        with self.changed:
            return self.logs.setdefault((pod, previous), Log())

    def write(
        self, pod: str, *lines: bytes, at_ns: int | None = None, previous: bool = False, close: bool = False
    ) -> None:
        """Let a container write lines, each a microsecond after the one before unless told when."""
        log = self.log(pod, previous=previous)
        with self.changed:
            for line in lines:
                last = log.entries[-1][0] if log.entries else 0
                log.entries.append((last + 1000 if at_ns is None else at_ns, line))
            log.is_closed = log.is_closed or close
            self.changed.notify_all()

    def end(self) -> None:
        """Let every open answer end."""
        with self.changed:
            self.is_ending = True
            self.changed.notify_all()


def stamp(nanoseconds: int) -> bytes:
    moment = datetime.fromtimestamp(EPOCH.timestamp() + nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000:09d}Z".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def do_GET(self) -> None:
        url = urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts == ["version"]:
            self._json(200, {"gitVersion": "v1.36.3"})
        elif parts == ["apis", "jobset.x-k8s.io"]:
            self._json(200, {"kind": "APIGroup", "versions": [{"version": "v1alpha2"}]})
        elif parts[-1] == "log":
            self._log(parts[-2], query)
        elif parts[-1] in COLLECTIONS:
            self._collection(parts[-1], query)
        elif len(parts) > 1 and parts[-2] in COLLECTIONS:
            with self.world.changed:
                found = self.world.objects.get((parts[-2], parts[-1]))
            self._json(200, found) if found else self._status(404, "NotFound", f'{parts[-2]} "{parts[-1]}" not found')
        else:
            self._status(404, "", "the server could not find the requested resource")

    def _collection(self, collection: str, query: dict[str, str]) -> None:
        name = query.get("fieldSelector", "").rpartition("=")[2]
        with self.world.changed:
            items = [o for (c, n), o in self.world.objects.items() if c == collection and name in ("", n)]
            version = self.world.version
            refusal = self.world.refusals.pop(0) if self.world.refusals else None
        if refusal:
            self._status(refusal[0], "", refusal[1])
            return
        if query.get("watch") != "true":
            self._json(200, {"items": items, "metadata": {"resourceVersion": str(version)}})
            return
        self._start_chunks()
        seen = int(query["resourceVersion"])
        while not self.world.is_ending:
            with self.world.changed:
                new = [
                    h
                    for h in self.world.history
                    if h[0] > seen and h[1] == collection and name in ("", h[3]["metadata"]["name"])
                ]
                if not new:
                    self.world.changed.wait(timeout=1)
                    continue
                seen = new[-1][0]
            self._chunk(b"".join(json.dumps({"type": t, "object": o}).encode() + b"\n" for _, _, t, o in new))
        self._chunk(b"")

    def _log(self, pod: str, query: dict[str, str]) -> None:
        log = self.world.log(pod, previous=query.get("previous") == "true")
        with self.world.changed:
            log.num_requests += 1
            refusal = log.refusals.pop(0) if log.refusals else None
            limit = log.break_after.pop(0) if log.break_after else None
            end = log.end_after.pop(0) if log.end_after else None
        if refusal:
            self._status(refusal[0], "", refusal[1])
            return
        since = query.get("sinceTime")
        from_ns = (
            int((datetime.fromisoformat(since.replace("Z", "+00:00")) - EPOCH).total_seconds()) * 10**9 if since else 0
        )
        self._start_chunks()
        sent, at = 0, 0
        if "tailLines" in query:
            at = max(0, len(log.entries) - int(query["tailLines"]))
        while not self.world.is_ending:
            with self.world.changed:
                fresh, at, is_closed = log.entries[at:], len(log.entries), log.is_closed
                if not fresh and not is_closed and query.get("follow") == "true":
                    self.world.changed.wait(timeout=1)
                    continue
            data = b"".join(stamp(ns) + b" " + line for ns, line in fresh if ns >= from_ns)
            cut = next((c for c in (limit, end) if c is not None and sent + len(data) >= c), None)
            data = data if cut is None else data[: cut - sent]
            for piece in _pieces(data, log.chunk_bytes):
                self._chunk(piece)
            sent += len(data)
            if cut is not None and limit is not None:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(2)
                return
            if cut is not None or is_closed or query.get("follow") != "true":
                break
        self._chunk(b"")

    def _start_chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _status(self, code: int, reason: str, message: str) -> None:
        self._json(code, {"kind": "Status", "reason": reason, "message": message, "code": code})

    def _json(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the reader has gone
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass


def _pieces(data: bytes, size: int | None) -> Iterator[bytes]:
    if size is None:
        yield from data.splitlines(keepends=True)
    else:
        yield from (data[at : at + size] for at in range(0, len(data), size))


@contextmanager
def serving(world: World) -> Iterator[Api]:
    """Serve a world on loopback, and yield a connection to it."""
    handler = type("Handler", (_Handler,), {"world": world})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield open_api(Target("test", "test", url, None, {"server": url}), Flags())
    finally:
        world.end()
        server.shutdown()
        server.server_close()
        thread.join()
