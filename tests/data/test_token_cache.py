"""The token cache under the loader: the same batches with it and without, and a later run that tokenises nothing."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.builders import Host, data_job
from tests.tasks.test_conversations import make_chat_tokenizer
from tests.tokens.builders import make_reference, make_tokenizer
from tpuworker.data.batches import HostBatch
from tpuworker.data.cursor import Cursor
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.data.measuring import measured
from tpuworker.data.tokenising import ram_bytes
from tpuworker.errors import DataError
from tpuworker.pipeline import Pipeline, make_pipeline
from tpuworker.spec import TPUJob
from tpuworker.tokens.engine import Encoded, Engine
from tpuworker.tokens.entry import read_entry

LENGTH = 24
LAYOUTS: dict[str, dict[str, Any]] = {
    "pad": {"layout": "pad"},
    "exact": {"layout": "pack", "packing": {"form": "exact"}},
    "stream": {"layout": "pack", "packing": {"form": "stream"}, "train": {"steps": 20}},
}


@dataclass
class CountingEngine:
    """The reference engine, and how many texts it was given."""

    engine: Engine = field(default_factory=make_reference)
    num_texts: int = 0
    lock: Any = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def version(self) -> str:
        return self.engine.version

    def encode(self, texts: Any) -> Encoded:
        with self.lock:
            self.num_texts += len(texts)
        return self.engine.encode(texts)


def text_of(number: int) -> str | None:
    return None if number % 37 == 5 else f"row {number} " + "words and more " * (number * 7 % 9)


def talk_of(number: int) -> list[dict[str, str]]:
    role = "narrator" if number % 41 == 7 else "user"
    turns = [(role, f"question {number}"), ("assistant", "answer " * (number % 5 + 1)), ("user", "thanks")]
    return [{"role": role, "content": text} for role, text in turns]


@cache
def corpus_of(task: str) -> str:
    """150 rows in a dozen units of parquet and jsonl files; some null, one no JSON at all, or with unknown roles."""
    directory = Path(tempfile.mkdtemp(prefix=f"corpus-{task}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    column, row_of = ("messages", talk_of) if task == "conversation" else ("text", text_of)
    for part in range(2):
        rows = [row_of(number) for number in range(part * 50, part * 50 + 50)]
        pq.write_table(pa.table({column: rows}), directory / f"{part}.parquet", row_group_size=10)
    lines = [json.dumps({column: row_of(number)}) for number in range(100, 150)]
    lines[20] = "{broken"
    (directory / "2.jsonl").write_text("\n".join(lines) + "\n")
    return f"{directory}/*"


def keep_two_of_three(table: pa.Table) -> npt.NDArray[np.bool_]:
    return np.arange(table.num_rows) % 3 != 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for jobs that differ in everything: none may find what another one's rows came to."""
    return tmp_path_factory.mktemp("shared")


def cached_job(directory: Path | None, layout: str, **data: Any) -> TPUJob:
    cached = {} if directory is None else {"cache": str(directory)}
    chosen = {"max_length": LENGTH, "epochs": 2, "on_bad_record": "mask", "shuffle": {"seed": 4, "lanes": 8}}
    return data_job(corpus_of(data.get("task", "pretrain")), **{**chosen, **LAYOUTS[layout], **cached, **data})


def pipeline_of(job: TPUJob, engine: CountingEngine) -> Pipeline:
    tokenizer = make_chat_tokenizer() if job.spec.data.task == "conversation" else make_tokenizer()
    return make_pipeline(job.spec.data, tokenizer, engine, job.rows_per_host)


def run(job: TPUJob, start: Cursor | None = None, rank: int = 0) -> tuple[list[HostBatch], int]:
    """Return all batches of a host, and how many texts were tokenised for them."""
    engine = CountingEngine()
    pipeline = pipeline_of(job, engine)
    index = measured(job, build_index(job), pipeline, Host(0, 1))
    with Loader(job, Host(rank, job.num_hosts), index, pipeline, start) as loader:
        return [_kept(batch) for batch in loader], engine.num_texts


def _kept(batch: HostBatch) -> HostBatch:
    """The buffers of a batch are used again."""
    arrays = {name: array.copy() for name, array in batch.arrays.items()}
    return HostBatch(arrays, batch.step, batch.cursor, batch.rows, batch.account, batch.bad)


def content(batches: list[HostBatch]) -> list[Any]:
    # A stream tells bad records once it has read them, some batches early: how early is a matter of threads.
    told = [(batch.rows, () if batch.cursor.lanes else batch.bad) for batch in batches]
    return [*zip(arrays_and_cursors(batches), told, strict=True)]


def arrays_and_cursors(batches: list[HostBatch]) -> list[Any]:
    """All but the bad records, which a stream tells once it has read them, some batches early."""
    return [({name: array.tobytes() for name, array in b.arrays.items()}, b.cursor) for b in batches]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cache_changes_no_batch_and_a_second_run_tokenises_nothing(tmp_path: Path, layout: str) -> None:
    plain, _ = run(cached_job(None, layout))
    first, texts_first = run(cached_job(tmp_path, layout))
    again, texts_again = run(cached_job(tmp_path, layout))
    assert len(plain) >= 10
    assert content(first) == content(plain)
    assert content(again) == content(plain)
    # Two epochs; and the measuring before them, or else the rows of the first batch, which does not wait for units.
    assert texts_first == {"exact": 150, "pad": 158, "stream": 166}[layout]
    assert texts_again == 0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_whatever_is_chosen_the_batches_are_those_without_a_cache_on_a_resume_too(
    shared: Path, choice: st.DataObject
) -> None:
    data = {
        "task": choice.draw(st.sampled_from(["text", "pretrain", "conversation"])),
        "hosts": choice.draw(st.sampled_from([1, 2])),
        "on_bad_record": choice.draw(st.sampled_from(["mask", {"skip": {"limit": 20}}])),
        "filter": choice.draw(st.sampled_from([None, f"{__name__}.{keep_two_of_three.__name__}"])),
        "shuffle": {"seed": choice.draw(st.integers(0, 3)), "lanes": 8},
    }
    layout = choice.draw(st.sampled_from(list(LAYOUTS)))
    if layout != "stream":
        data["remainder"] = choice.draw(st.sampled_from(["drop", "mask"]))
    rank = choice.draw(st.integers(0, data["hosts"] - 1))
    job = cached_job(shared, layout, **data)
    plain, _ = run(cached_job(None, layout, **data), rank=rank)
    assert content(run(job, rank=rank)[0]) == content(plain)
    step = choice.draw(st.integers(0, len(plain) - 2))
    resumed, _ = run(job, plain[step].cursor, rank=rank)
    assert arrays_and_cursors(resumed) == arrays_and_cursors(plain[step + 1 :])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_cache_costs_tokenising_and_nothing_else(tmp_path: Path, layout: str) -> None:
    full = cached_job(tmp_path, layout, cache_limit_gib=2**-20)
    assert content(run(full)[0]) == content(run(cached_job(None, layout))[0])
    kept = [path.stat().st_size for path in tmp_path.rglob("*.tokens")]
    assert sum(kept) <= 1024
    assert run(full)[1] > 0


def test_the_first_batch_does_not_wait_for_whole_units_that_the_cache_lacks(tmp_path: Path) -> None:
    gate = threading.Event()

    class Gated(CountingEngine):
        def encode(self, texts: Any) -> Encoded:
            if len(texts) > 8:
                gate.wait(60)
            return super().encode(texts)

    pq.write_table(pa.table({"text": [f"row {number}" for number in range(600)]}), tmp_path / "rows.parquet")
    job = data_job(f"{tmp_path}/*.parquet", max_length=LENGTH, cache=str(tmp_path / "cache"))
    with Loader(job, Host(0, 1), build_index(job), pipeline_of(job, Gated())) as loader:
        assert next(loader).step == 0
        assert not gate.is_set()
        gate.set()
        assert next(loader).step == 1


def test_documents_that_the_cache_holds_are_mapped_and_take_no_ram(tmp_path: Path) -> None:
    job = cached_job(tmp_path, "pad")
    run(job)
    found = [read_entry(np.memmap(path, np.uint8, mode="r")) for path in tmp_path.rglob("*.tokens")]
    assert sum(documents.num_documents for documents in found) == 150
    assert [ram_bytes(documents) for documents in found] == [0] * len(found)


def test_records_that_one_run_puts_up_with_are_refused_by_the_next_that_does_not(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text_of(number + 50)}) for number in range(23)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines, json.dumps({"text": None})]) + "\n")
    for layout in LAYOUTS:
        sources = [{"files": f"{tmp_path}/rows.jsonl"}]
        tolerant = cached_job(tmp_path / "cache", layout, sources=sources)
        assert run(tolerant)[0]
        strict = cached_job(tmp_path / "cache", layout, sources=sources, on_bad_record="fail", remainder="drop")
        with pytest.raises(DataError, match=r"rows\.jsonl, row 24: found null"):
            run(strict)
