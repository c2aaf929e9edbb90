"""A small hub: model repositories over HTTP as the hub's client asks for them, with failures on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by name, each with files by name.

    Attributes:
        repositories: What there is.
        status: Status of failing answers.
        failures: How many answers from now on fail; -1 for all.
        requests: Paths that were asked for.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.status = 0
        self.failures = 0
        self.requests: list[str] = []
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(path)
        if self.hub.failures:
            self.hub.failures -= 1
            return self._send(self.hub.status, b"{}", {}, with_body)
        for name, files in self.hub.repositories.items():
            if path.startswith(f"/api/models/{name}"):
                return self._repository(name, files, path.removeprefix(f"/api/models/{name}"), with_body)
            if path.startswith(f"/{name}/resolve/"):
                revision, _, file = path.removeprefix(f"/{name}/resolve/").partition("/")
                if file in files and revision in ("main", COMMIT):
                    etag = hashlib.sha1(files[file]).hexdigest()
                    headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}
                    return self._send(200, files[file], headers, with_body)
                return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, with_body)
        return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)

    def _repository(self, name: str, files: dict[str, bytes], rest: str, with_body: bool) -> None:
        if rest.startswith("/revision/") and rest.split("/")[2] not in ("main", COMMIT):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, with_body)
        if rest.startswith("/tree/"):
            tree = [{"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for file, content in files.items()]  # fmt: skip
            return self._send(200, json.dumps(tree).encode(), {}, with_body)
        information = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files],
                       "private": False, "tags": [], "downloads": 0}  # fmt: skip
        return self._send(200, json.dumps(information).encode(), {}, with_body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve a hub on a free port of this machine until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
