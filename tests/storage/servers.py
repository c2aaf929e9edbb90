"""HTTP servers on loopback with faults to order: plain files, and a hub that speaks the Hugging Face protocol."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Headers that belong to one connection, not to the answer.
_OF_THE_HOP = frozenset({"connection", "transfer-encoding", "content-length", "server", "date"})
_EPOCH = formatdate(0, usegmt=True)


@dataclass
class Faults:
    """What goes wrong, by order of the requests whose path matches.

    Attributes:
        plan: (pattern of the path, what: a status, "cut", "slow", "reset").  Each entry is used once.
        served: Requests by method and path.
    """

    plan: list[tuple[str, int | str]] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_for(self, method: str, path: str) -> int | str | None:
        """Return the fault for a request, once."""
        with self._lock:
            self.served[f"{method} {path}"] += 1
            for index, (pattern, what) in enumerate(self.plan):
                if re.search(pattern, path):
                    del self.plan[index]
                    return what
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    faults: Faults
    slow_seconds = 0.3

    def log_message(self, *args: Any) -> None:
        pass

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/octet-stream", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def _faulty(self) -> bool | str:
        """Answer with a fault and return True; return "cut" where the body has to be cut."""
        what = self.faults.next_for(self.command, urlsplit(self.path).path)
        if isinstance(what, int):
            self._drain()
            self._send(what, b"no", {"Retry-After": "0"})
            return True
        if what == "reset":
            self._drain()
            self.connection.close()
            self.close_connection = True
            return True
        if what == "slow":
            threading.Event().wait(self.slow_seconds)
        return "cut" if what == "cut" else False

    def _drain(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send_file(self, content: bytes, cut: bool, headers: dict[str, str] | None = None) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        common = {
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Last-Modified": formatdate(0, usegmt=True),
            **(headers or {}),
        }
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if match and content:
            start, stop = int(match[1]), min(int(match[2] or len(content) - 1) + 1, len(content))
            common["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            self._send(206, content[start:stop], common, cut)
        else:
            self._send(200, content, common, cut)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        cut = self._faulty()
        if cut is True:
            return
        path = unquote(urlsplit(self.path).path)
        if path in self.files:
            self._send_file(self.files[path], cut == "cut")
        else:
            self._send(404, b"not found")


class _HubHandler(_Handler):
    """Files are named ``owner/name/path``; every revision means the one commit."""

    def _split(self, path: str) -> tuple[str, str, str] | None:
        """Return dataset, what is asked and the rest of an API path."""
        match = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info)(?:/([^/]+))?(/.*)?)?", path)
        return (match[1], match[2] or "revision", (match[4] or "").strip("/")) if match else None

    def _of(self, dataset: str) -> dict[str, bytes]:
        prefix = dataset + "/"
        return {name[len(prefix) :]: content for name, content in self.files.items() if name.startswith(prefix)}

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._send(status, body, {"Content-Type": "application/json", **(headers or {})})

    @staticmethod
    def _entry(name: str, content: bytes) -> dict[str, Any]:
        return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

    def _missing(self) -> None:
        self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def do_GET(self) -> None:
        cut = self._faulty()
        if cut is True:
            return
        path = unquote(urlsplit(self.path).path)
        if resolved := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            content = self._of(resolved[1]).get(resolved[3])
            if content is None:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            else:
                self._send_file(content, cut == "cut", {"X-Repo-Commit": COMMIT})
            return
        asked = self._split(path)
        if asked is None or not self._of(asked[0]):
            self._missing()
        elif asked[1] == "revision":
            siblings = [{"rfilename": name} for name in self._of(asked[0])]
            self._json({"id": asked[0], "sha": COMMIT, "siblings": siblings, "private": False, "tags": []})
        else:
            recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["False"])[0].lower() in ("true", "1")
            self._tree(asked[0], asked[2], recursive)

    def _tree(self, dataset: str, inside: str, recursive: bool) -> None:
        prefix = f"{inside}/" if inside else ""
        entries: dict[str, dict[str, Any]] = {}
        for name, content in self._of(dataset).items():
            if not name.startswith(prefix):
                continue
            first, *deeper = name[len(prefix) :].split("/")
            if deeper:
                entries[prefix + first] = {"type": "directory", "path": prefix + first, "size": 0, "oid": "d"}
            if recursive or not deeper:
                entries[name] = self._entry(name, content)
        if entries:
            self._json(list(entries.values()))
        else:
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})

    def do_POST(self) -> None:
        if self._faulty() is True:
            return
        asked = self._split(unquote(urlsplit(self.path).path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if asked is None or asked[1] != "paths-info":
            self._missing()
            return
        fields = json.loads(body) if body.startswith(b"{") else parse_qs(body.decode())
        files = self._of(asked[0])
        found = []
        for path in fields["paths"]:
            if path in files:
                found.append(self._entry(path, files[path]))
            elif any(name.startswith(f"{path}/") for name in files):
                found.append({"type": "directory", "path": path, "size": 0, "oid": "d"})
        self._json(found)


class _ProxyHandler(_Handler):
    """Passes requests on to another server; bodies are read whole, so that one can be cut."""

    target: str

    def _pass(self) -> None:
        cut = self._faulty()
        if cut is True:
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection(self.target, timeout=20)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_HOP:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut == "cut" else content)
        self.close_connection = self.close_connection or cut == "cut"
        connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 (names of http.server)


@contextmanager
def serve(files: dict[str, bytes], faults: Faults | None = None, *, hub: bool = False) -> Iterator[str]:
    """Serve files by path (``/a/b``; for a hub ``owner/name/file``) and give the address."""
    with _serving(_HubHandler if hub else _Handler, {"files": files, "faults": faults or Faults()}) as address:
        yield address


@contextmanager
def proxy(target: str, faults: Faults) -> Iterator[str]:
    """Serve what the server at ``target`` (a URL) answers, with faults, and give the address."""
    members = {"files": {}, "faults": faults, "target": urlsplit(target).netloc}
    with _serving(_ProxyHandler, members) as address:
        yield address


@contextmanager
def _serving(kind: type[_Handler], members: dict[str, Any]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (kind,), members))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
