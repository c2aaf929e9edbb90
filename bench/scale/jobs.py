"""Jobs and indexes of any size, for the questions where no data is read."""

from __future__ import annotations

import json

import numpy as np

from bench.corpus.tokenizers import END_TOKEN
from tpuworker.data.index import Index, SourceIndex
from tpuworker.spec import TPUJob, load_job
from tpuworker.storage import FileInfo


def job_over(
    pattern: str,
    *,
    global_batch_size: int,
    num_hosts: int,
    seed: int = 0,
    tokenizer: str = "tokenizer.json",
    max_length: int = 1024,
    epochs: int = 1,
    steps: int | None = None,
    buffer_size: int | str = "auto",
    lanes: int | str = "auto",
) -> TPUJob:
    """Return a job over plain files with one chip a host."""
    document = {
        "apiVersion": "tpulaunch.dev/v1alpha1",
        "kind": "TPUJob",
        "metadata": {"name": "scale"},
        "spec": {
            "slice": {"generation": "v6e", "topology": "1x1", "count": num_hosts},
            "worker": {"backend": "jax"},
            "data": {
                "sources": [{"files": pattern}],
                "tokenizer": {"path": tokenizer, "eos_token": END_TOKEN, "pad_token": END_TOKEN},
                "max_length": max_length,
                "epochs": epochs,
                "global_batch_size": global_batch_size,
                "batch_sharded_over": "hosts",
                "shuffle": {"seed": seed, "buffer_size": buffer_size, "lanes": lanes},
            },
            "train": {"entrypoint": "bench.consumer", **({} if steps is None else {"steps": steps})},
        },
    }
    return load_job(json.dumps(document))


def index_of(num_rows: int, num_units: int) -> Index:
    """Return the index of one file that nobody has: so many rows in so many units of nearly equal size."""
    ends = np.arange(1, num_units + 1, dtype=np.int64) * num_rows // num_units
    rows = np.diff(ends, prepend=0)
    units = np.arange(num_units, dtype=np.int64)
    source = SourceIndex(
        number=0,
        name="simulated",
        weight=1.0,
        files=(FileInfo("part-0.parquet", 0),),
        formats=("parquet",),
        digests=("0",),
        column="text",
        column_type=b"",
        unit_files=np.zeros(num_units, np.int64),
        unit_starts=units,
        unit_stops=units + 1,
        unit_rows=rows,
        unit_raw_rows=rows,
        unit_bytes=rows * 1_500,
    )
    return Index((source,))
