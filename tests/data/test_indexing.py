"""The index: all faults at once, one schema over all files, bad rows left out before steps are counted."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.data.builders import BytePipeline, Host, data_job, global_batches, numbers, write_parquet
from tpuworker.data.index import Index
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.errors import EXIT_SPEC, DataError, InputError, SpecError


def refusal(job: Any, kind: type[Exception] = InputError, **options: Any) -> str:
    with pytest.raises(kind) as refused:
        build_index(job, **options)
    return str(refused.value)


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def test_every_pattern_that_matches_nothing_is_named_with_what_lies_beside_it(tmp_path: Path) -> None:
    write_parquet(tmp_path, [3])
    message = refusal(data_job([{"files": f"{tmp_path}/*.jsonl"}, {"files": f"{tmp_path}/none/x.parquet"}]))
    assert f"{tmp_path}/*.jsonl: found no file; wanted at least one file" in message
    assert "part-000.parquet" in message
    assert f"{tmp_path}/none/x.parquet: found no file" in message
    assert InputError.exit_code == EXIT_SPEC


def test_a_directory_is_refused_with_what_to_write(tmp_path: Path) -> None:
    assert f"write {tmp_path}/*.parquet" in refusal(data_job(str(tmp_path)))


def test_bad_files_are_all_named_at_once(tmp_path: Path) -> None:
    write_parquet(tmp_path, [3])
    (tmp_path / "b.parquet").write_text("hello")
    (tmp_path / "c.parquet").touch()
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    message = refusal(data_job(f"{tmp_path}/*.parquet"))
    assert "b.parquet: found plain text" in message
    assert "c.parquet: found an empty file" in message
    assert "d.parquet: found a parquet file that was cut off" in message


def test_an_ending_that_says_nothing_wants_a_format(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_text('{"text": "a"}\n' * 8)
    assert "set format" in refusal(data_job(f"{tmp_path}/data.bin"))
    job = data_job([{"files": f"{tmp_path}/data.bin", "format": "jsonl"}])
    assert build_index(job).num_rows == 8


def test_files_that_a_wildcard_should_not_mean_are_left_out(tmp_path: Path) -> None:
    write_parquet(tmp_path, [8])
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    assert [file.name for file in build_index(data_job(f"{tmp_path}/*")).sources[0].files] == ["part-000.parquet"]


def test_without_a_text_column_the_columns_found_are_listed(tmp_path: Path) -> None:
    message = refusal(data_job(write_parquet(tmp_path, [8], column="body")))
    assert "found columns id, body; wanted a column 'text' or 'data'; set spec.data.text_column" in message
    named = data_job(f"{tmp_path}/*.parquet", text_column="body")
    assert build_index(named).sources[0].column == "body"


def test_a_file_without_the_column_of_the_others_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, [8])
    pq.write_table(pa.table({"content": ["x"]}), tmp_path / "z.parquet")
    assert "z.parquet: found columns content; wanted a column 'text'" in refusal(data_job(f"{tmp_path}/*.parquet"))


def test_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
    assert "text of type int64; wanted a column of text" in refusal(data_job(f"{tmp_path}/*.parquet"))


def test_types_are_unified_over_all_files(tmp_path: Path) -> None:
    """Kinds of fault of datasets#7092 and #6162: a first file that is all null, a field that comes later."""
    turns = [[{"role": "user", "content": "hi"}], [{"role": "user", "content": "ho", "name": "x"}]]
    write_jsonl(tmp_path / "a.jsonl", [{"messages": None}] * 3)
    write_jsonl(tmp_path / "b.jsonl", [{"messages": turns[0]}] * 3)
    write_jsonl(tmp_path / "c.jsonl", [{"messages": turns[1], "extra": 1}] * 3)
    index = build_index(data_job(f"{tmp_path}/*.jsonl", task="conversation", on_bad_record="mask"))
    fields = {field.name for field in index.sources[0].schema.field("messages").type.value_type}
    assert fields == {"role", "content", "name"}


def test_types_that_cannot_be_unified_are_refused_by_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": [["a"]]}), tmp_path / "b.parquet")
    message = refusal(data_job(f"{tmp_path}/*.parquet"))
    assert "b.parquet: found text of type list<" in message
    assert "wanted string as in the files before it" in message


def test_fewer_rows_than_a_batch_are_refused_with_what_to_do(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [7]), batch=8)
    with pytest.raises(InputError, match="found 7 rows; wanted one global batch, 8; lower global_batch_size to 7"):
        Loader(job, Host(0, 1), build_index(job), BytePipeline())


def test_the_index_survives_its_json(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [50, 3, 20]), filter="tests.data.test_indexing.even_rows")
    index = build_index(job)
    copy = Index.from_json(index.to_json())
    assert copy.fingerprints == index.fingerprints
    assert global_batches(job, copy) == global_batches(job, index)


def test_a_copy_elsewhere_is_the_same_data_and_an_edit_is_not(tmp_path: Path) -> None:
    here, there = (build_index(data_job(write_parquet(tmp_path / d, [9, 9]))).fingerprints for d in "ab")
    assert here == there
    write_parquet(tmp_path / "b", [9, 10])
    assert build_index(data_job(f"{tmp_path}/b/*.parquet")).fingerprints != here


def even_rows(table: pa.Table) -> Any:
    return pc.equal(pc.bit_wise_and(table["id"], 1), 0)


def no_rows(table: pa.Table) -> Any:
    return np.zeros(table.num_rows, dtype=bool)


def too_few(table: pa.Table) -> Any:
    return np.ones(1, dtype=bool)


def failing(table: pa.Table) -> Any:
    return table["absent"]


def test_a_filter_runs_before_steps_are_counted(tmp_path: Path) -> None:
    job = data_job(write_parquet(tmp_path, [40, 23]), batch=4, filter=f"{__name__}.even_rows")
    index = build_index(job)
    assert (index.num_rows, index.sources[0].filtered_rows) == (32, 31)
    rows = [n for batch in global_batches(job, index) for n in batch]
    assert sorted(rows) == list(range(0, 64, 2))


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("no_rows", InputError, "no row that the filter keeps"),
        ("too_few", DataError, r"returned bool \[1\]"),
        ("failing", DataError, "raised KeyError"),
        ("absent", SpecError, "wanted the dotted path of a function"),
    ],
)
def test_a_filter_that_is_no_filter_is_refused(
    function: str, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    job = data_job(write_parquet(tmp_path, [4]), filter=f"{__name__}.{function}")
    with pytest.raises(kind, match=message):
        build_index(job)


ROWS = [{"text": f"r{n:06d}"} for n in range(40)]
BAD = {3: '{"text": ', 11: {"text": None}, 30: {"other": 1}}
MIXED = [BAD.get(n, row) for n, row in enumerate(ROWS)]


def test_bad_records_under_fail_stop_the_job_and_name_file_and_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", MIXED)
    job = data_job(f"{tmp_path}/*.jsonl", batch=4, shuffle={"order": "sequential"})
    loader = Loader(job, Host(0, 1), build_index(job), BytePipeline())
    with pytest.raises(DataError, match=r"a\.jsonl, row 4: found invalid JSON: .*; wanted a sound record"):
        next(loader)


def test_nulls_that_a_footer_tells_of_are_refused_before_anything_runs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None, None]}), tmp_path / "a.parquet")
    assert "a.parquet: found 2 rows where text is null" in refusal(data_job(f"{tmp_path}/*.parquet"), DataError)


def test_bad_records_under_mask_keep_their_places_without_loss_and_are_counted(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", MIXED)
    job = data_job(f"{tmp_path}/*.jsonl", batch=4, shuffle={"order": "sequential"}, on_bad_record="mask")
    with Loader(job, Host(0, 1), build_index(job), BytePipeline()) as loader:
        batches = list(loader)
        assert loader.stats().bad == {"invalid JSON": 1, "null": 2}
    assert [n for batch in batches for n in numbers(batch.arrays)] == [None if n in BAD else n for n in range(40)]
    assert [str(bad.place) for batch in batches for bad in batch.bad] == [
        f"{tmp_path}/a.jsonl, row {n + 1}" for n in BAD
    ]


def test_bad_records_under_skip_are_left_out_on_every_run_the_same(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", MIXED)
    job = data_job(f"{tmp_path}/*.jsonl", batch=4, on_bad_record={"skip": {"limit": 3}}, remainder="mask")
    index = build_index(job)
    assert [(row.row, row.reason) for row in index.sources[0].dropped] == [
        (3, "invalid JSON"),
        (11, "null"),
        (30, "null"),
    ]
    rows = [n for batch in global_batches(job, index) for n in batch if n is not None]
    assert sorted(rows) == [n for n in range(40) if n not in BAD]
    assert build_index(job).fingerprints == index.fingerprints


def test_more_bad_records_than_the_limit_are_refused_with_examples(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", MIXED)
    message = refusal(data_job(f"{tmp_path}/*.jsonl", on_bad_record={"skip": {"limit": 2}}), DataError)
    assert "found 3 bad records; wanted at most 2" in message
    assert "a.jsonl, row 12: found null" in message


def test_a_judge_of_the_task_decides_too_under_skip(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    job = data_job(f"{tmp_path}/*.jsonl", on_bad_record={"skip": {"limit": 5}})
    index = build_index(job, judge=lambda column: [(2, "roles")] if len(column) == 40 else [])
    assert [(row.row, row.reason) for row in index.sources[0].dropped] == [(2, "roles")]


@pytest.fixture(scope="module")
def truncated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input 3 of the loaders study: five compressed files, the third cut in half."""
    directory = tmp_path_factory.mktemp("truncated")
    draw = random.Random(0)
    for number in range(5):
        rows = [{"text": f"r{number * 40_000 + n:06d} {draw.random()}"} for n in range(40_000)]
        content = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
        (directory / f"{number}.jsonl.gz").write_bytes(content[: len(content) // 2] if number == 2 else content)
    return directory


def test_a_truncated_archive_is_refused_with_file_and_byte(truncated: Path) -> None:
    cut = (truncated / "2.jsonl.gz").stat().st_size
    message = refusal(data_job(f"{truncated}/*.jsonl.gz"))
    assert f"2.jsonl.gz: found the gz stream cut off at byte {cut:,}" in message


def test_a_truncated_archive_is_left_out_whole_under_skip(truncated: Path) -> None:
    index = build_index(data_job(f"{truncated}/*.jsonl.gz", on_bad_record={"skip": {"limit": 5}}))
    assert index.num_rows == 160_000
    assert [(Path(row.file).name, row.row) for row in index.sources[0].dropped] == [("2.jsonl.gz", -1)]


def test_a_thousand_files_are_named_only_in_part(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:03d}.parquet").touch()
    message = refusal(data_job(f"{tmp_path}/*.parquet"))
    assert message.count("an empty file") == 20
    assert "10 faults of this kind" in message
