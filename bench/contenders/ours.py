"""This project's loader, put together as the worker does it: index, proved engine, pipeline, threads, cursor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.contenders.base import Arrays, packed_batches, parquet_files
from bench.corpus.tokenizers import END_TOKEN, PAD_TOKEN
from bench.task import Task
from tpuworker import backends
from tpuworker.data.cursor import Cursor
from tpuworker.data.indexing import build_index
from tpuworker.data.loader import Loader
from tpuworker.identity import Identity
from tpuworker.pipeline import make_pipeline, sample_texts
from tpuworker.spec import TPUJob, load_job
from tpuworker.tokens.choose import SAMPLE_TEXTS, Trials, judge_engines, make_engine
from tpuworker.tokens.resolve import load_tokenizer

#: A slice of one host with one chip, so that a job of N hosts is N slices.
_ONE_HOST = {"generation": "v6e", "topology": "1x1"}


def import_all(task: Task) -> None:
    """Import what a job would have imported before its data is opened."""
    if name := task.text_option("backend", ""):
        __import__({"torch_xla": "torch_xla.core.xla_model"}.get(name, name))


def job_of(task: Task) -> TPUJob:
    """Return the job that a task stands for."""
    tokens = json.loads(Path(task.tokenizer).read_text())["added_tokens"]
    names = {token["content"] for token in tokens}
    tokenizer: dict[str, str] = {"path": task.tokenizer, "engine": task.text_option("engine", "auto")}
    tokenizer |= {"pad_token": PAD_TOKEN} if PAD_TOKEN in names else {"pad_token": "</s>"}
    tokenizer |= {"eos_token": END_TOKEN} if END_TOKEN in names else {"eos_token": "</s>"}
    data: dict[str, Any] = {
        # In rows of their own the peers' documents carry no end token, so neither do ours.
        "task": "text" if task.layout == "pad" else "pretrain",
        "sources": [{"files": str(task.folder("parquet") / "*.parquet")}],
        "tokenizer": tokenizer,
        "max_length": task.length,
        "layout": task.layout,
        "global_batch_size": task.num_rows * task.world,
        "batch_sharded_over": "hosts",
        "shuffle": {"seed": task.seed},
        "epochs": task.epochs,
    }
    if "cache" in task.options:
        data["cache"] = str(Path(task.scratch) / "tokens")
    document = {
        "apiVersion": "tpulaunch.dev/v1alpha1",
        "kind": "TPUJob",
        "metadata": {"name": "bench"},
        "spec": {
            "slice": {**_ONE_HOST, "count": task.world},
            "worker": {"backend": task.text_option("backend", "jax")},
            "data": data,
            "train": {"entrypoint": "bench.consumer", **_steps(task)},
        },
    }
    return load_job(json.dumps(document))


def _steps(task: Task) -> dict[str, int]:
    """Return about an epoch of steps where documents are packed as they are read, which needs a number."""
    return {} if task.layout == "pad" else {"steps": max(1, task.epochs * packed_batches(task))}


class _Stream:
    def __init__(self, task: Task, state: object) -> None:
        job = job_of(task)
        spec = job.spec.data.tokenizer
        identity = Identity(task.rank, task.world, 0, 1, coordinator="localhost")
        index = build_index(job)
        tokenizer = load_tokenizer(job.spec.data)
        trials = Trials(seed=task.seed, directory=Path(task.scratch) / "engines", num_threads=task.num_threads)
        samples = sample_texts(job.spec.data, tokenizer, _first_rows(task))
        verdict = judge_engines(spec, tokenizer, samples, trials)
        engine = make_engine(verdict, spec, tokenizer, num_threads=task.num_threads)
        pipeline = make_pipeline(job.spec.data, tokenizer, engine, job.rows_per_host)
        cursor = Cursor.from_json(state) if isinstance(state, str) else None
        self.engine = verdict.describe()
        self._loader = Loader(job, identity, index, pipeline, cursor)
        self._cursor = self._loader.cursor
        self.num_batches = self._loader.plan.num_steps // task.epochs
        self._backend = _started(task, identity)
        # A consumer that only waits leaves the batch on the device, as a training step does.
        self._is_read_back = task.measure != "stall"

    def __iter__(self) -> Iterator[Arrays]:
        backend = self._backend
        if backend is None:
            for batch in self._loader:
                self._cursor = batch.cursor
                yield batch.arrays
            return
        # One batch ahead on the device, as the session has it, so that the transfer overlaps the step.
        ahead: tuple[Mapping[str, Any], Cursor] | None = None
        for batch in self._loader:
            moved = backend.put(batch.arrays)
            if ahead is not None:
                yield self._back(backend, *ahead)
            ahead = moved, batch.cursor
        if ahead is not None:
            yield self._back(backend, *ahead)

    def _back(self, backend: backends.Backend, moved: Mapping[str, Any], cursor: Cursor) -> Arrays:
        """Return a batch on the device as the consumer reads it; the state is that of this batch."""
        self._cursor = cursor
        if not self._is_read_back:
            return {}
        return {name: np.asarray(rows) for name, rows in backend.local_rows(moved).items()}

    def state(self) -> object:
        return self._cursor.to_json()

    def close(self) -> None:
        """Wait for the other hosts, whose runtime would take one that just went away for a failure."""
        if self._backend is not None:
            self._backend.stop()


def _first_rows(task: Task) -> Any:
    """Return the texts that engines are tried on, as many as the worker takes."""
    return next(pq.ParquetFile(parquet_files(task)[0]).iter_batches(SAMPLE_TEXTS, columns=["text"]))["text"]


def _started(task: Task, identity: Identity) -> backends.Backend | None:
    name = task.text_option("backend", "")
    if not name:
        return None
    backend = backends.load(name)
    backend.start(identity, platform="cpu", sharding="hosts")
    return backend


def open_stream(task: Task, state: object) -> Any:
    """Open the loader, cold or with what an earlier run left in the scratch directory."""
    return _Stream(task, state)
