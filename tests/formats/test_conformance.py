"""What every format has to give: all rows once and in order, unit by unit, with sizes and a telling fingerprint."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.formats.corpora import TEXTS, WRITERS
from tpuworker.formats import ENDINGS, FORMATS, format_named
from tpuworker.formats import lines as line_units
from tpuworker.storage import FileInfo, Storage

SCHEMA = pa.schema([("text", pa.string())])


def written(case: str, directory: Path) -> tuple[FileInfo, object]:
    name, write = WRITERS[case]
    write(directory / name)
    kind = format_named(name)
    assert kind is not None
    return Storage().info(str(directory / name)), FORMATS[kind]()


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.parametrize("unit_bytes", [64, 8 << 20])
def test_units_hold_all_rows_once_and_in_order(
    case: str, unit_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_units, "UNIT_BYTES", unit_bytes)
    file, reader = written(case, tmp_path)
    storage = Storage()
    units = reader.index(storage, file, ["text"])
    texts: list[str] = []
    for start, stop, rows in zip(units.starts, units.stops, units.rows, strict=True):
        decoded = reader.read(storage, file, int(start), int(stop), SCHEMA)
        assert decoded.table.schema.names == ["text"]
        assert decoded.table.num_rows == rows
        assert not decoded.bad
        texts += decoded.table.column(0).to_pylist()
    assert [text.strip() for text in texts] == TEXTS
    assert (units.sizes_bytes > 0).all()
    assert "text" in units.columns.names


@pytest.mark.parametrize("case", WRITERS)
def test_every_unit_can_be_read_with_all_its_columns(case: str, tmp_path: Path) -> None:
    file, reader = written(case, tmp_path)
    units = reader.index(Storage(), file, ["text"])
    table = reader.read(Storage(), file, int(units.starts[0]), int(units.stops[0]), None).table
    assert "text" in table.column_names
    assert table.num_rows == units.rows[0]


@pytest.mark.parametrize("case", ["parquet", "jsonl", "jsonl.gz", "arrow file", "arrow stream", "text"])
def test_the_fingerprint_tells_a_changed_row(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.formats import corpora

    file, reader = written(case, tmp_path)
    before = reader.index(Storage(), file, ["text"]).fingerprint
    assert reader.index(Storage(), file, ["text"]).fingerprint == before
    texts = ["ROW" + text[3:] if n == 7 else text for n, text in enumerate(TEXTS)]
    monkeypatch.setattr(corpora, "TABLE", pa.table({"id": list(range(12)), "text": texts}))
    monkeypatch.setattr(corpora, "TEXTS", texts)
    monkeypatch.setattr(corpora.jsonl, "__defaults__", (texts,))
    file, reader = written(case, tmp_path)
    assert reader.index(Storage(), file, ["text"]).fingerprint != before


def test_every_ending_belongs_to_one_format_also_when_compressed() -> None:
    for ending, name in ENDINGS.items():
        assert format_named(f"part-0{ending}") == format_named(f"PART-0{ending.upper()}.gz") == name
    assert format_named("model.bin") is None
