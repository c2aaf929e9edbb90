"""What commands print: data to stdout as text, table, JSON or YAML; remarks to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.errors import InputError

if TYPE_CHECKING:
    from tpulaunch.cli.jsonpath import Template


class Format(StrEnum):
    """``-o``: how data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


#: ``-o`` of commands that show jobs, to be read with :func:`read_output`.
OutputOption = Annotated[
    str,
    typer.Option(
        "-o", "--output", help="wide, json, yaml, name or jsonpath=TEMPLATE.", metavar="FORMAT", show_default=False
    ),
]


def read_output(text: str) -> Format | Template:
    """Return what ``-o`` asks for where it may also be a template, ``jsonpath={.name}``.

    Raises:
        InputError: It is no format, or the template cannot be read.
    """
    kind, equals, template = text.partition("=")
    if kind == "jsonpath" and equals:
        from tpulaunch.cli.jsonpath import read_template

        return read_template(template)
    try:
        return Format(text)
    except ValueError:
        raise InputError(f"-o {text}: found no format; wanted wide, json, yaml, name or jsonpath=TEMPLATE") from None


def installed_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import version

    return version("tpulaunch")


def use_color(stream: Any) -> bool:
    """Say whether a stream is a terminal that wants colour (NO_COLOR and TERM=dumb do not)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def emit(text: str) -> None:
    """Write data to stdout, with a line end."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def emit_json(value: Any) -> None:
    """Write data to stdout as JSON."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def emit_data(value: Any, output: Format | Template) -> None:
    """Write data to stdout as JSON, as YAML, or through a template, which decides about the line end itself."""
    if output is Format.JSON:
        emit_json(value)
    elif output is Format.YAML:
        emit_yaml(value)
    elif not isinstance(output, Format):
        sys.stdout.write(output.fill(value))


def emit_yaml(value: Any) -> None:
    """Write data to stdout as YAML."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.dump(value, sys.stdout)


def emit_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows under a header."""
    emit(format_table(header, rows))


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under a header, columns three spaces apart, as kubectl does."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join("   ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def remark(where: str, sentence: str) -> None:
    """Write one sentence that is no error to stderr."""
    word = "\x1b[33mnote\x1b[0m" if use_color(sys.stderr) else "note"
    sys.stderr.write(f"{where}: {word}: {sentence}\n")
