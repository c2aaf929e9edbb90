"""Ways of storing rows, one file each; a new one is its file and its line here."""

from __future__ import annotations

from tpuworker.formats.arrow import ArrowFormat
from tpuworker.formats.base import BadRecord, Decoded, FileUnits, Format, UnitFormat
from tpuworker.formats.hub import DatasetsFormat
from tpuworker.formats.jsonl import JsonlFormat
from tpuworker.formats.parquet import ParquetFormat
from tpuworker.formats.records import ArrayRecordFormat, TfRecordFormat
from tpuworker.formats.text import TextFormat
from tpuworker.storage import plain_name

#: Every way of storing rows by its name; those of plain files are words of the spec.
FORMATS: dict[str, type[Format]] = {
    each.name: each
    for each in (
        ParquetFormat,
        JsonlFormat,
        ArrowFormat,
        TextFormat,
        DatasetsFormat,
        ArrayRecordFormat,
        TfRecordFormat,
    )
}

ENDINGS: dict[str, str] = {ending: name for name, each in FORMATS.items() for ending in each.endings}


def format_named(file_name: str) -> str | None:
    """Return the format that a file's name ends with (compression aside), or None.

    Args:
        file_name: Last part of a path, ``part-0.jsonl.gz``.
    """
    lowered = plain_name(file_name).lower()
    return next((name for ending, name in ENDINGS.items() if lowered.endswith(ending)), None)


__all__ = ["ENDINGS", "FORMATS", "BadRecord", "Decoded", "FileUnits", "Format", "UnitFormat", "format_named"]
