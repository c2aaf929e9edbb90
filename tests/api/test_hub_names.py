"""Names of hub datasets, given to each function, against a hub on loopback that is busy at first."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.builders import texts, tokenised
from tests.storage.servers import COMMIT, Faults, serve

ROWS, LENGTH = 100, 12
#: HF_ENDPOINT is read when huggingface_hub is imported, so the cases of a library run in a process of their own.
_SCRIPT = """
import json, sys
import numpy as np
from itertools import islice
from tests.api.builders import make_tokenizer, row_numbers
from tpuworker.errors import WorkerError
from tpuworker import api
tokenizer = make_tokenizer()

def batches(dataset):
    return [row_numbers(np.asarray(batch["input_ids"])) for batch in dataset]

def rows(dataset):
    return row_numbers([row["input_ids"] for row in dataset])

def told(name, make):
    try:
        found = make()
    except WorkerError as error:
        found = [type(error).__name__, str(error)]
    print("case", json.dumps([name, found]))
"""
_PLAIN = """
def stream(name="acme/rows", split="train", **options):
    return api.create_streaming_dataset(name, split, tokenizer, 12, 3, 30, **options)

def resumed():
    first = stream()
    taken = rows(islice(first, 37))
    second = stream()
    second.load_state_dict(first.state_dict())
    return [rows(stream()), taken + rows(second)]

told("alone", lambda: rows(stream()))
told("ranks", lambda: [rows(stream(world_size=3, rank=rank)) for rank in range(3)])
told("resumed", resumed)
told("split", lambda: rows(stream(split="test")))
told("revision", lambda: rows(stream(revision=COMMIT)))
told("files", lambda: rows(stream("hf://datasets/acme/rows/data/train-*.parquet")))
told("absent", lambda: rows(stream("acme/absent")))
told("no split", lambda: rows(stream(split="dev")))
told("no column", lambda: rows(stream(text_column="body")))
"""
_JAX = """
def jax_of(name, **options):
    return api.create_jax_dataset(name, "train", 10, 1, **options)

told("texts", lambda: batches(jax_of("acme/rows", tokenizer=tokenizer, max_length=12)))
told("tokens", lambda: batches(jax_of("acme/tokens")))
"""
_TORCH = """
import datasets

def deterministic(epoch):
    return api.create_deterministic_dataloader("acme/rows", "train", 10, tokenizer, 7, epoch, max_length=12)

def loaded(world_size, rank):
    stream = api.create_streaming_dataset("acme/rows", "train", tokenizer, 12, 3, 30)
    return batches(api.create_dataloader(stream, 20 // world_size, world_size, rank))

told("deterministic", lambda: [batches(deterministic(epoch)) for epoch in (2, 2, 3)])
told("loader", lambda: [loaded(1, 0), loaded(2, 0), loaded(2, 1)])
told("tokens", lambda: rows(api.StreamingDataset("acme/tokens", 1, 0)))
told("streaming", lambda: rows(api.PretrainDataset(
    tokenizer, datasets.load_dataset("acme/rows", split="train", streaming=True), 12)))
told("in memory", lambda: rows(api.PretrainDataset(tokenizer, datasets.load_dataset("acme/rows", split="train"), 12)))
"""


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=16)
    return sink.getvalue()


def answers(script: str, home: Path) -> dict[str, Any]:
    """Run cases against the hub and return what each came to: rows, or class and words of the refusal."""
    whole = texts(ROWS)
    files = {
        "acme/rows/README.md": b"",
        "acme/rows/data/train-00000-of-00002.parquet": parquet(pa.table({"text": whole[:70]})),
        "acme/rows/data/train-00001-of-00002.parquet": parquet(pa.table({"text": whole[70:]})),
        "acme/rows/data/test-00000-of-00001.parquet": parquet(pa.table({"text": texts(7, first=200)})),
        "acme/tokens/data/train-00000-of-00001.parquet": parquet(tokenised(ROWS, LENGTH).data.table),
    }
    faults = Faults([(r"acme/rows", 429), (r"acme/rows/resolve/", 503), (r"acme/rows/resolve/", "cut")])
    with serve(files, faults, hub=True) as address:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            **{"HOME": str(home), "XDG_CACHE_HOME": str(home), "PJRT_DEVICE": "CPU"},
            **{"HF_ENDPOINT": address, "HF_HUB_DISABLE_TELEMETRY": "1"},
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not faults.plan, "a fault was never met"
    lines = [line.removeprefix("case ") for line in done.stdout.splitlines() if line.startswith("case ")]
    return dict(json.loads(line) for line in lines)


def test_rows_of_a_hub_name_stream_to_every_reader_and_resume(tmp_path: Path) -> None:
    found = answers(f"{_SCRIPT}\nCOMMIT = {COMMIT!r}\n{_PLAIN}", tmp_path)
    assert sorted(found["alone"]) == list(range(ROWS))
    assert found["alone"] != list(range(ROWS))
    assert [len(part) for part in found["ranks"]] == [ROWS // 3] * 3
    assert len({number for part in found["ranks"] for number in part}) == ROWS // 3 * 3
    whole, resumed = found["resumed"]
    assert resumed == whole == found["alone"]
    assert sorted(found["split"]) == list(range(200, 207))
    assert found["revision"] == found["alone"]
    assert sorted(found["files"]) == list(range(ROWS))
    for case, words in {
        "absent": "name: found 'acme/absent'",
        "no split": "split: found 'dev'; wanted one of train, test",
        "no column": "found columns text; wanted a column 'body'",
    }.items():
        kind, message = found[case]
        assert kind == "InputError"
        assert words in message


@pytest.mark.jax
def test_jax_batches_come_from_a_hub_name(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    found = answers(_SCRIPT + _JAX, tmp_path)
    for case in ("texts", "tokens"):
        assert [len(batch) for batch in found[case]] == [10] * 10
        assert sorted(number for batch in found[case] for number in batch) == list(range(ROWS))


@pytest.mark.torch_xla
def test_torch_loaders_and_datasets_read_a_hub_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = answers(_SCRIPT + _TORCH, tmp_path)
    once, again, other = found["deterministic"]
    assert once == again != other
    assert sorted(number for batch in once for number in batch) == list(range(ROWS))
    alone, *parts = found["loader"]
    assert [first + second for first, second in zip(*parts, strict=True)] == alone
    assert len({number for batch in alone for number in batch}) == ROWS
    assert sorted(found["tokens"]) == list(range(ROWS))
    assert found["streaming"] == found["in memory"] == list(range(ROWS))
