"""Corpora, jobs and a small real pipeline for the tests of the data engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.builders import make_job
from tpuworker.data.batches import HostBatch
from tpuworker.data.index import Index, SourceIndex
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.spec import TPUJob
from tpuworker.storage import FileInfo

MAX_LENGTH = 16


@dataclass(frozen=True)
class Host:
    """A host by its rank."""

    host_rank: int
    num_hosts: int


@dataclass(frozen=True)
class BytePipeline:
    """Ids are the bytes of the text plus one, so that 0 is the pad; a real pipeline, only smaller."""

    max_length: int = MAX_LENGTH

    @property
    def fingerprint(self) -> dict[str, str]:
        return {"tokenizer": "bytes", "layout": f"pad/{self.max_length}"}

    def batch(self, column: Any) -> dict[str, np.ndarray]:
        texts = [text.encode() if text is not None else b"" for text in column.to_pylist()]
        ids = np.zeros((len(texts), self.max_length), dtype=np.int32)
        for row, text in enumerate(texts):
            kept = np.frombuffer(text[: self.max_length], dtype=np.uint8)
            ids[row, : len(kept)] = kept.astype(np.int32) + 1
        mask = (ids > 0).astype(np.int32)
        return {"input_ids": ids, "attention_mask": mask, "labels": np.where(mask, ids, -100).astype(np.int32)}


def write_parquet(directory: Path, rows_per_file: Sequence[int], row_group: int = 20, column: str = "text") -> str:
    """Write files of numbered rows ("r000017") with one more column; returns the pattern that matches them."""
    directory.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, rows in enumerate(rows_per_file):
        texts = [f"r{row:06d}" for row in range(first, first + rows)]
        table = pa.table({"id": pa.array(range(first, first + rows), pa.int64()), column: pa.array(texts, pa.string())})
        pq.write_table(table, directory / f"part-{number:03d}.parquet", row_group_size=row_group)
        first += rows
    return str(directory / "*.parquet")


def data_job(files: str | list[dict[str, Any]], *, hosts: int = 1, batch: int = 8, **data: Any) -> TPUJob:
    """Return a job of ``hosts`` one-chip slices over files (a pattern, or whole sources)."""
    train = {"entrypoint": "trainer.main", **data.pop("train", {})}
    return make_job(
        slice={"generation": "v6e", "topology": "1x1", "count": hosts},
        data={
            "sources": [{"files": files}] if isinstance(files, str) else files,
            "max_length": MAX_LENGTH,
            "global_batch_size": batch,
            **data,
        },
        train=train,
    )


def numbers(arrays: dict[str, np.ndarray]) -> list[int | None]:
    """Return the row numbers that the ids of a batch spell; None for a row without a record."""
    found: list[int | None] = []
    for row in arrays["input_ids"]:
        text = bytes(int(token) - 1 for token in row if token)
        found.append(int(text[1:]) if text else None)
    return found


def global_batches(job: TPUJob, index: Index | None = None, **loader: Any) -> list[list[int | None]]:
    """Return the row numbers of every global batch: the hosts' parts side by side, each from a loader of its own."""
    index = index or build_index(job)
    parts: list[list[HostBatch]] = []
    for rank in range(job.num_hosts):
        with Loader(job, Host(rank, job.num_hosts), index, BytePipeline(), **loader) as batches:
            parts.append(list(batches))
    assert len({len(part) for part in parts}) == 1, "hosts have different numbers of steps"
    return [[n for batch in step for n in numbers(batch.arrays)] for step in zip(*parts, strict=True)]


def made_up_index(*rows_of_units: Sequence[int], weights: Sequence[float] | None = None) -> Index:
    """Return an index without files: one source for each list of unit sizes."""
    sources = []
    for number, rows in enumerate(rows_of_units):
        sizes = np.array(rows, dtype=np.int64)
        sources.append(
            SourceIndex(
                number=number,
                name=f"made up {number}",
                weight=1.0 if weights is None else weights[number],
                files=(FileInfo(f"made-up-{number}.parquet", 1),),
                formats=("parquet",),
                digests=("0",),
                column="text",
                column_type=pa.schema([("text", pa.string())]).serialize().to_pybytes(),
                unit_files=np.zeros(len(sizes), dtype=np.int64),
                unit_starts=np.arange(len(sizes)),
                unit_stops=np.arange(len(sizes)) + 1,
                unit_rows=sizes,
                unit_raw_rows=sizes,
                unit_bytes=sizes * 100,
            )
        )
    return Index(tuple(sources))
