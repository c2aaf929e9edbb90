"""What goes wrong between here and the server ends in one sentence that says where and what to do."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.cluster_ops.api_server import World, serving
from tests.cluster_ops.builders import make_jobset
from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import phase_of
from tpulaunch.cluster.connection import open_api
from tpulaunch.cluster.errors import AccessError, ApiError, UnreachableError
from tpulaunch.cluster.kinds import JOBSET, WORKLOAD
from tpulaunch.cluster.kubeconfig import Flags, Target
from tpulaunch.cluster.wait import Deadline, await_end, await_gone
from tpulaunch.errors import NotFoundError, WaitTimeoutError

Answer = Callable[[socket.socket], None]


@contextmanager
def answering(
    *answers: Answer, scheme: str = "http", tell_request: Callable[[str], None] | None = None
) -> Iterator[Api]:
    """A server that treats each connection in turn as told, and a client of it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):  # a client that was refused may be gone already
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield open_api(
            Target("test", "test", url, None, {"server": url}, user_name="ana"), Flags(tell_request=tell_request)
        )
    finally:
        listener.close()


def says(status: str, body: str) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    return answer


def hangs_up(connection: socket.socket) -> None:
    connection.recv(65_536)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (says("401 Unauthorized", "{}"), AccessError, "the server does not accept the credentials of 'ana'"),
        (says("200 OK", "<html>a captive portal</html>"), AccessError, "the answer is no JSON"),
        (says("302 Found", ""), AccessError, "the server points elsewhere"),
    ],
)
def test_an_answer_that_is_no_api_servers_is_told_as_such(answer: Answer, error: type[Exception], words: str) -> None:
    with answering(answer) as api, pytest.raises(error) as refused:
        api.get_path("/version")
    assert words in str(refused.value)


def test_a_read_whose_kept_connection_was_closed_is_asked_once_more() -> None:
    with answering(hangs_up, says("200 OK", '{"gitVersion": "v1"}')) as api:
        assert api.get_path("/version") == {"gitVersion": "v1"}


def test_requests_are_told_for_the_asking_with_their_outcome_and_without_their_bodies() -> None:
    told: list[str] = []
    with answering(says("201 Created", "{}"), hangs_up, hangs_up, tell_request=told.append) as api:
        api.create_review("/apis/x", {"spec": "s3cret"})
        with pytest.raises(UnreachableError):
            api.get_path("/version", {"limit": 5})
    assert re.fullmatch(r"POST http://127.0.0.1:\d+/apis/x 201 in \d+ ms", told[0])
    assert [line.split(" in ")[0].partition("/version")[2] for line in told[1:]] == ["?limit=5 no answer"] * 2


def test_a_server_that_always_hangs_up_is_unreachable_and_a_write_is_never_repeated() -> None:
    with answering(hangs_up, hangs_up) as api, pytest.raises(UnreachableError, match=r"context test \(http://127"):
        api.get_path("/version")
    with answering(hangs_up, says("201 Created", "{}")) as api, pytest.raises(UnreachableError):
        api.create_review("/apis/x", {})


def test_a_server_that_speaks_no_tls_is_told_as_a_matter_of_certificates() -> None:
    with (
        answering(says("400 Bad Request", "plain"), scheme="https") as api,
        pytest.raises(AccessError, match="certificate"),
    ):
        api.get_path("/version")


def test_a_kind_that_the_cluster_does_not_serve_is_absent_and_no_error() -> None:
    with serving(World()) as api:
        assert api.version_of(WORKLOAD) is None
        assert api.get(WORKLOAD, "ml", "x") is None
        assert api.list_all(WORKLOAD, "ml") == []


def test_a_wait_outlives_a_server_that_is_away_for_a_while_and_not_one_that_refuses() -> None:
    world = World()
    world.put("jobsets", make_jobset())
    with serving(world) as api:
        states = api.follow(JOBSET, "ml", name="tiny", patience_seconds=1)
        next(states)
        world.refusals = [(503, "starting"), (429, "too many requests")]
        world.put("jobsets", make_jobset(terminalState="Completed"))
        assert any(
            phase_of(job) == "Completed" for _, state in zip(range(5), states, strict=False) for job in state.values()
        )
        world.refusals = [(403, "you may not"), (403, "you may not")]
        with pytest.raises(ApiError, match="you may not"):
            for _ in states:
                pass


def test_waiting_ends_with_the_job_or_the_deadline() -> None:
    world = World()
    world.put("jobsets", make_jobset())
    with serving(world) as api:
        with pytest.raises(WaitTimeoutError, match="had not ended within 0s"):
            await_end(api, "ml", "tiny", Deadline.after(0.2))
        threading.Timer(0.1, lambda: world.put("jobsets", make_jobset(terminalState="Completed"))).start()
        assert await_end(api, "ml", "tiny", Deadline.after(30)) == "Completed"
        threading.Timer(0.1, lambda: world.remove("jobsets", "tiny")).start()
        await_gone(api, "ml", "tiny", "js-1", Deadline.after(30))
        with pytest.raises(NotFoundError, match="does not exist"):
            await_end(api, "ml", "tiny", Deadline.after(30))
