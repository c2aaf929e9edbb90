"""Log lines as people and programs see them."""

from __future__ import annotations

import pytest

from tpulaunch.cli.log_printer import Color, LogPrinter
from tpulaunch.cluster.lines import StampedLine
from tpulaunch.cluster.logs import LogLine, Notice, Source

RECORD = '{"severity":"ERROR","message":"it broke","step":3}'


def line(text: str, host: int = 0) -> LogLine:
    return LogLine(Source(0, host, rank=host), StampedLine(1_772_366_400_500_000_000, text))


def test_each_line_has_its_host_before_it_in_a_column_of_fixed_width(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LogPrinter(5)
    for item in (line("a"), line("b", 12), line(" 10%\r 20%\r"), Notice("attempt 1 starts")):
        printer.take(item)
    printed = capsys.readouterr()
    assert printed.out == "0/0   | a\n0/12  | b\n0/0   |  10%\n0/0   |  20%\n"
    assert printed.err == "-- attempt 1 starts\n"


def test_on_a_pipe_records_stay_as_they_are_and_for_people_their_message_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for raw in (None, False):
        LogPrinter(3, raw=raw).take(line(RECORD))
        LogPrinter(3, raw=raw).take(line("{not a record"))
    assert capsys.readouterr().out == (
        f"0/0 | {RECORD}\n0/0 | {{not a record\n0/0 | ERROR it broke\n0/0 | {{not a record\n"
    )


def test_hosts_differ_in_colour_when_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LogPrinter(3, color=Color.ALWAYS)
    printer.take(line("a"))
    printer.take(line("a", 1))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("\x1b[")
    assert second.startswith("\x1b[")
    assert first.split("m")[0] != second.split("m")[0]


def test_stamps_and_bare_lines_are_had_for_the_asking(capsys: pytest.CaptureFixture[str]) -> None:
    LogPrinter(3, stamps=True).take(line("a"))
    LogPrinter(3, prefix=False).take(line(RECORD))
    assert capsys.readouterr().out == f"0/0 | 2026-03-01T12:00:00.500000000Z a\n{RECORD}\n"
