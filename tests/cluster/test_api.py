"""How the harness asks an API server that is busy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cluster.api import Api, ApiError


@contextmanager
def server(directory: Path, *statuses: int) -> Iterator[tuple[Api, list[str]]]:
    """An API server that gives these answers in turn, and the methods it was asked with."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
            body = json.dumps({"message": "storage is (re)initializing"}).encode()
            self.send_response(statuses[len(asked) - 1])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing: the test looks at what was asked."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        one = {"name": "one"}
        kubeconfig = directory / "kubeconfig"
        config = {
            "current-context": "one",
            "clusters": [{**one, "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}],
            "users": [{**one, "user": {}}],
            "contexts": [{**one, "context": {"cluster": "one", "user": "one"}}],
        }
        kubeconfig.write_text(json.dumps(config))
        try:
            yield Api(kubeconfig), asked
        finally:
            http.shutdown()


def test_a_question_that_the_server_puts_off_is_asked_again_until_it_is_answered(tmp_path: Path) -> None:
    with server(tmp_path, 429, 429, 200) as (api, asked):
        assert api.request("GET", "/apis/example.dev/v1/widgets") == {"message": "storage is (re)initializing"}
    assert asked == ["GET"] * 3


@pytest.mark.parametrize(("method", "status"), [("GET", 404), ("GET", 503), ("DELETE", 429)])
def test_other_refusals_and_those_of_a_change_are_told_at_once(tmp_path: Path, method: str, status: int) -> None:
    with server(tmp_path, status) as (api, asked), pytest.raises(ApiError, match=f"{status} storage is") as refused:
        api.request(method, "/apis/example.dev/v1/widgets")
    assert (refused.value.status, asked) == (status, [method])
