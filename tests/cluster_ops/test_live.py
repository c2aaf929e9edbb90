"""A watched text is drawn in place on a terminal, and printed on a pipe whenever it has changed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

import pytest

from tpulaunch.cli.live import show_live


def script(*texts: str) -> Callable[[], tuple[str, bool]]:
    left = list(texts)

    def text() -> tuple[str, bool]:
        now = left.pop(0)
        return now, not left

    return text


def test_on_a_pipe_each_change_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_live(script("Queued", "Queued", "Running", "Completed"), pause_seconds=0)
    assert capsys.readouterr().out == "Queued\nRunning\nCompleted\n"


def test_on_a_terminal_the_text_is_drawn_over_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        show_live(script("first\nline", "second\nline"), pause_seconds=0)
        terminal.flush()
        shown = os.read(reader, 65_536).decode()
    os.close(reader)
    assert "first" in shown
    assert "\x1b[1A" in shown.split("first")[1].split("second")[0]  # the cursor goes up before it is drawn again


def test_a_reader_that_leaves_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        show_live(script("a", "b"), pause_seconds=0)
