"""Sources that the datasets library resolves: hub names, its own formats; a hub that is busy, absent or private."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builders import data_job, global_batches
from tests.storage.servers import Faults, serve
from tpuworker.data.index import Index
from tpuworker.data.indexing import build_index
from tpuworker.errors import InputError

#: HF_ENDPOINT is read when huggingface_hub is imported, so a process of its own runs all cases.
SCRIPT = """
import json, sys
sys.path.insert(0, {root!r})
from tests.data.builders import data_job, global_batches
from tpuworker.data.indexing import build_index
from tpuworker.errors import WorkerError
from tpuworker.storage import RetryPolicy, Storage
storage = Storage(RetryPolicy(attempts=5, first_seconds=0.01, most_seconds=0.02))
for name, source in {cases!r}.items():
    job = data_job([source], batch=4, remainder="mask")
    try:
        index = build_index(job, storage=storage)
        rows = sorted(n for batch in global_batches(job, index, storage=storage) for n in batch if n is not None)
        first = index.sources[0]
        print("case", json.dumps([name, [rows, first.formats, [file.url for file in first.files]]]))
    except WorkerError as error:
        print("case", json.dumps([name, [error.reason, error.exit_code, str(error)]]))
"""


def parquet(first: int, stop: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [f"r{n:06d}" for n in range(first, stop)]}), sink, row_group_size=4)
    return sink.getvalue()


PROSE = {
    "README.md": b"",
    "data/train-00000-of-00002.parquet": parquet(0, 10),
    "data/train-00001-of-00002.parquet": parquet(10, 16),
    "data/test-00000-of-00001.parquet": parquet(16, 20),
}
BUSY: dict[str, int | str] = {
    "acme/b429": 429,
    "acme/b503": 503,
    "acme/cut": "cut",
    "acme/slow": "slow",
    "acme/reset": "reset",
}
FILES = {
    **{f"{name}/{path}": content for name in ("acme/prose", "acme/always", *BUSY) for path, content in PROSE.items()},
    "acme/table/train.csv": b"text,n\n" + b"".join(b"r%06d,1\n" % n for n in range(9)),
    "acme/lines/train.jsonl": b"".join(b'{"text": "r%06d"}\n' % n for n in range(9)),
}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"hub": name} for name in ("acme/prose", "acme/always", "acme/lines", "acme/table", "acme/absent", *BUSY)},
    "pattern": {"files": "hf://datasets/acme/prose/data/t*.parquet"},
    "no match": {"files": "hf://datasets/acme/prose/data/x*.parquet"},
    "no split": {"hub": "acme/prose", "split": "dev"},
    "no configuration": {"hub": "acme/prose", "name": "big"},
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every case came to: rows, formats and files; or reason, exit code and message."""
    home = tmp_path_factory.mktemp("home")
    faults = Faults([(rf"{name}/resolve/.*train-0000.*parquet", what) for name, what in BUSY.items() for _ in range(3)])
    faults.plan += [(rf"{name}/tree/", what) for name, what in BUSY.items() if what != "cut"]
    faults.plan += [(r"acme/always/resolve/.*parquet", 429)] * 200
    script = SCRIPT.format(root=str(Path(__file__).parents[2]), cases=CASES)
    with serve(FILES, faults, hub=True) as address:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HF_ENDPOINT": address,
            "HF_TOKEN": "hf_secretsecretsecret",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "secretsecret" not in done.stdout + done.stderr
    assert {pattern for pattern, _ in faults.plan} <= {r"acme/always/resolve/.*parquet"}, "a fault was never met"
    lines = [line.removeprefix("case ") for line in done.stdout.splitlines() if line.startswith("case ")]
    return dict(json.loads(line) for line in lines)


def test_parquet_on_the_hub_is_read_by_its_own_row_groups_at_a_commit(answers: dict[str, Any]) -> None:
    rows, formats, urls = answers["acme/prose"]
    assert rows == list(range(16))
    assert formats == ["parquet", "parquet"]
    assert urls[0].startswith("hf://datasets/acme/prose@0123456789abcdef")


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_hub_is_asked_again(name: str, answers: dict[str, Any]) -> None:
    assert answers[name][0] == list(range(16))


def test_jsonl_on_the_hub_is_read_as_lines(answers: dict[str, Any]) -> None:
    assert answers["acme/lines"][:2] == [list(range(9)), ["jsonl"]]


def test_a_format_of_the_library_is_read_through_it(answers: dict[str, Any]) -> None:
    assert answers["acme/table"][:2] == [list(range(9)), ["datasets"]]


def test_files_on_the_hub_can_be_named_by_pattern(answers: dict[str, Any]) -> None:
    assert answers["pattern"][0] == list(range(20))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("acme/absent", ["spec.data.sources[0].hub: found 'acme/absent'", "a dataset that is there"]),
        ("no split", ["sources[0].split: found 'dev'; wanted one of train, test"]),
        ("no configuration", ["sources[0].hub", "big"]),
        ("no match", ["found no file", "test-00000-of-00001.parquet"]),
    ],
)
def test_what_is_not_on_the_hub_is_refused_by_name(case: str, words: list[str], answers: dict[str, Any]) -> None:
    reason, exit_code, message = answers[case]
    assert (reason, exit_code) == ("InputError", 2)
    for word in words:
        assert word in message


def test_a_hub_that_stays_busy_ends_in_an_error_that_a_restart_cures(answers: dict[str, Any]) -> None:
    reason, exit_code, message = answers["acme/always"]
    assert (reason, exit_code) == ("UnavailableError", 42)
    assert "gave up after 5 requests" in message


def local_csv(directory: Path) -> dict[str, str]:
    for number in range(3):
        lines = "".join(f"r{n:06d},{n}\n" for n in range(number * 700, number * 700 + 700))
        (directory / f"{number}.csv").write_text("text,n\n" + lines)
    return {"hub": "csv", "data_files": f"{directory}/*.csv"}


def test_local_files_of_the_library_stream_shard_by_shard_each_row_once(tmp_path: Path) -> None:
    job = data_job([local_csv(tmp_path)], batch=16, hosts=4)
    index = build_index(job)
    assert index.sources[0].num_units == 3
    batches = global_batches(job, Index.from_json(index.to_json()))
    assert batches == global_batches(data_job([local_csv(tmp_path)], batch=16, hosts=1))
    counts = Counter(n for batch in batches for n in batch)
    assert len(counts) == 2096
    assert set(counts.values()) == {1}


def even(table: pa.Table) -> Any:
    import pyarrow.compute as pc

    return pc.equal(pc.bit_wise_and(table["n"], 1), 0)


def test_a_filter_sees_all_columns_of_a_dataset(tmp_path: Path) -> None:
    index = build_index(data_job([local_csv(tmp_path)], filter=f"{__name__}.even"))
    assert index.num_rows == 1050


def test_a_dataset_without_the_column_lists_those_it_has(tmp_path: Path) -> None:
    source = local_csv(tmp_path)
    for path in tmp_path.glob("*.csv"):
        path.write_text(path.read_text().replace("text,n", "body,n"))
    with pytest.raises(InputError, match="found columns body, n; wanted a column 'text' or 'data'"):
        build_index(data_job([source]))
