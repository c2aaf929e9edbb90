"""A server on loopback with any number of objects, which lists them as Google Cloud Storage does: pages of 1,000."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_PAGE = 1_000


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    num_objects = 0

    def do_GET(self) -> None:
        """Answer a listing; anything else is not there."""
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if not parts.path.endswith("/b/bench/o"):
            self._send(404, {"error": {"code": 404, "message": "not found"}})
            return
        start = int(query.get("pageToken", "0"))
        stop = min(self.num_objects, start + min(_PAGE, int(query.get("maxResults", _PAGE))))
        prefix = query.get("prefix", "")
        names = [name for number in range(start, stop) if (name := f"part-{number:06d}.parquet").startswith(prefix)]
        answer: dict[str, Any] = {"kind": "storage#objects", "items": [_described(name) for name in names]}
        if stop < self.num_objects:
            answer["nextPageToken"] = str(stop)
        self._send(200, answer)

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _described(name: str) -> dict[str, str]:
    return {
        "kind": "storage#object",
        "name": name,
        "bucket": "bench",
        "size": "65536",
        "generation": "1",
        "etag": "CAE=",
        "updated": "2026-01-01T00:00:00.000Z",
        "timeCreated": "2026-01-01T00:00:00.000Z",
    }


@contextmanager
def serve_objects(count: int) -> Iterator[str]:
    """Serve so many objects in the bucket ``bench`` and yield the endpoint."""
    handler = type("_Counted", (_Handler,), {"num_objects": count})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
