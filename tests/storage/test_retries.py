"""Failed requests: repeated where time cures them, refused at once where it does not, never with a credential."""

from __future__ import annotations

import socket

import pytest

from tpuworker.errors import EXIT_RETRY, DataError
from tpuworker.storage import NotFoundError, Remedy, RetryPolicy, UnavailableError, redact, remedy, with_retries

QUICK = RetryPolicy(attempts=4, first_seconds=0.5, most_seconds=3)


class StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class BotocoreError(Exception):
    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (StatusError(429), Remedy.RETRY),
        (StatusError(503), Remedy.RETRY),
        (StatusError(404), Remedy.MISSING),
        (StatusError(403), Remedy.DENIED),
        (StatusError(400), Remedy.NEVER),
        (BotocoreError("SlowDown", 503), Remedy.RETRY),
        (BotocoreError("NoSuchKey", 404), Remedy.MISSING),
        (ConnectionResetError(), Remedy.RETRY),
        (TimeoutError(), Remedy.RETRY),
        (socket.gaierror(-3, "Temporary failure in name resolution"), Remedy.RETRY),
        (FileNotFoundError("x"), Remedy.MISSING),
        (PermissionError("x"), Remedy.DENIED),
        (ValueError("x"), Remedy.NEVER),
        (caused(FileNotFoundError("x"), StatusError(429)), Remedy.RETRY),
        (caused(FileNotFoundError("x"), ConnectionRefusedError()), Remedy.RETRY),
        (caused(FileNotFoundError("x"), StatusError(404)), Remedy.MISSING),
        (caused(ValueError("x"), PermissionError()), Remedy.DENIED),
    ],
)
def test_the_remedy_is_read_from_the_whole_chain_of_causes(error: Exception, wanted: Remedy) -> None:
    assert remedy(error) is wanted


def attempts_of(errors: list[Exception]) -> tuple[str, list[float]]:
    pauses: list[float] = []
    left = iter(errors)

    def action() -> str:
        for error in left:
            raise error
        return "done"

    return with_retries(action, url="gs://b/x", policy=QUICK, sleep=pauses.append, draw=lambda: 0.5), pauses


def test_a_failure_that_passes_is_repeated_after_growing_pauses() -> None:
    assert attempts_of([StatusError(429), ConnectionResetError(), TimeoutError()]) == ("done", [0.375, 0.75, 1.5])


def test_a_failure_that_stays_ends_in_an_error_that_a_restart_cures() -> None:
    with pytest.raises(
        UnavailableError, match="gs://b/x: gave up after 4 requests; the last one failed with StatusError"
    ):
        attempts_of([StatusError(503)] * 9)
    assert UnavailableError.exit_code == EXIT_RETRY


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError("x"), NotFoundError, "wanted a file or object of this name"),
        (StatusError(403), DataError, "no permission"),
        (ValueError("what"), DataError, "ValueError: what"),
    ],
)
def test_other_failures_are_not_repeated(error: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        attempts_of([error])


def test_pauses_are_bounded_and_drawn() -> None:
    policy = RetryPolicy(attempts=9, first_seconds=1, most_seconds=8)
    assert [policy.pause_seconds(attempt, 0) for attempt in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert policy.pause_seconds(0, 0.999) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host/x?a=1", "https://***@host/x?a=1"),
        ("https://h/x?X-Amz-Signature=abc&b=2", "https://h/x?X-Amz-Signature=***&b=2"),
        ("https://h/x?b=2&token=abc", "https://h/x?b=2&token=***"),
        ("https://h/x?X-Goog-Credential=a%2Fb", "https://h/x?X-Goog-Credential=***"),
        ("Authorization: Bearer hf_abcdefghij", "Authorization: *** ***"),
        ("the token hf_abcdefghij was refused", "the token *** was refused"),
        ("key AKIAABCDEFGHIJKLMNOP", "key ***"),
        ("gs://bucket/part-*.parquet", "gs://bucket/part-*.parquet"),
    ],
)
def test_credentials_are_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown
