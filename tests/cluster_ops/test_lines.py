"""Lines are whole, in order, and each is handed on once, however the bytes arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpulaunch.cluster.lines import LineCutter, Position, StampedLine, parse_stamp_ns


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    cutter, lines, at = LineCutter(), [], 0
    for size in [*sizes, len(data)]:
        lines += cutter.feed(data[at : at + size])
        at += size
    return [*lines, rest] if (rest := cutter.rest()) else lines


@given(
    st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"])), min_size=1),
    st.lists(st.integers(0, 9)),
)
def test_lines_do_not_depend_on_where_the_chunks_are_cut(texts: list[str], sizes: list[int]) -> None:
    data = "".join(f"{text}\n" for text in texts).encode()
    assert [line.decode() for line in cut(data, sizes)] == texts


def test_a_last_line_without_a_line_feed_is_kept() -> None:
    assert cut(b"a\nTraceback", [3]) == [b"a", b"Traceback"]


def test_a_carriage_return_makes_a_line_of_each_state_of_a_progress_bar() -> None:
    line = StampedLine.read(b"2026-03-01T12:00:00.000000001Z \r 10%\r 20%\r")
    assert line.parts == [" 10%", " 20%"]
    assert StampedLine.read(b"2026-03-01T12:00:00Z ").parts == [""]


def test_a_stamp_is_taken_off_and_a_line_without_one_is_kept_whole() -> None:
    stamped = StampedLine.read("2026-03-01T12:00:00.5Z grüße  two spaces".encode())
    assert (stamped.stamp_ns, stamped.text) == (1_772_366_400_500_000_000, "grüße  two spaces")
    assert StampedLine.read(b"plain words") == StampedLine(None, "plain words")
    assert StampedLine.read(b"2026-03-01T12:00:00Z \xff!").text == "\ufffd!"


def test_stamps_of_any_precision_and_zone_are_compared_as_numbers() -> None:
    assert parse_stamp_ns("2026-03-01T12:00:00.1Z") == parse_stamp_ns("2026-03-01T12:00:00.100000000Z")
    assert parse_stamp_ns("2026-03-01T13:00:00+01:00") == parse_stamp_ns("2026-03-01T12:00:00Z")
    assert parse_stamp_ns("2026-03-01T12:00:00.12x4Z") is None
    assert parse_stamp_ns("12:00:00 started") is None


@given(st.lists(st.integers(0, 3 * 10**9), min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_each_line_is_taken_once_however_often_the_log_is_attached_to(stamps: list[int], breaks: list[int]) -> None:
    lines = [StampedLine(ns, str(number)) for number, ns in enumerate(sorted(stamps))]
    position, taken = Position(), []
    for end in [*breaks, len(lines)]:
        since = 0 if position.since is None else int(position.since[17:19]) * 10**9  # whole seconds, as the server
        position.attach()
        taken += [line.text for line in lines[:end] if (line.stamp_ns or 0) >= since and position.take(line)]
    assert taken == [line.text for line in lines]
