"""Several processes at once: each finds its own rank, and together they have the global batches of one alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROWS, BATCH, WORLD = 40, 8, 2
_DATASET = f"""
import json, os, sys
from datasets import Dataset
rows = Dataset.from_dict({{"input_ids": [[n] * 4 for n in range({ROWS})]}})
rank, port = int(sys.argv[1]), sys.argv[2]
"""
_JAX = f"""{_DATASET}
import jax
import numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{{port}}", {WORLD}, rank, coordinator_bind_address=f"127.0.0.1:{{port}}")
from tpuworker.api import create_jax_dataset
dataset = create_jax_dataset(rows, "train", {BATCH // WORLD}, 7)
if "STATE" in os.environ:
    dataset.load_state_dict(json.loads(os.environ["STATE"]))
batches = list(dataset)
total = jax.jit(lambda ids: ids[:, 0].sum())
print("SEEN " + json.dumps({{
    "shapes": [list(batch["input_ids"].shape) for batch in batches],
    "sums": [int(total(batch["input_ids"])) for batch in batches],
    "mine": [np.concatenate([s.data for s in b["input_ids"].addressable_shards])[:, 0].tolist() for b in batches],
    "state": dataset.state_dict(),
}}), flush=True)
jax.distributed.shutdown()
"""
_TORCH = f"""{_DATASET}
import torch
import torch.distributed as dist
import torch_xla
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{{port}}", rank=rank, world_size={WORLD})
from tpuworker.api import create_dataloader
loader = create_dataloader(rows, {BATCH // WORLD}, shuffle=True, seed=7)
batches = list(loader)
print("SEEN " + json.dumps({{
    "mine": [batch["input_ids"][:, 0].tolist() for batch in batches], "state": loader.state_dict(),
}}), flush=True)
dist.destroy_process_group()
"""
#: Rank 0 alone may read the corpus; then rank 1 is given other rows, another seed, and none at all.
_SHARED = f"""
import json, sys
import tpuworker.api.origins as origins
from tests.api.builders import in_memory, make_tokenizer, row_numbers
from tpuworker.api import create_dataloader, create_deterministic_dataloader, create_streaming_dataset
from tpuworker.errors import WorkerError
import torch.distributed as dist
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{{port}}", rank=rank, world_size={WORLD})
built = []
build_index = origins.build_index
origins.build_index = lambda job, **options: built.append(1) or build_index(job, **options)
pattern, broken = __import__("os").environ["CORPUS"], __import__("os").environ["BROKEN"]
tokenizer = make_tokenizer()

def said(make):
    try:
        return [n for batch in make() for n in row_numbers(batch["input_ids"])]
    except WorkerError as error:
        return f"{{type(error).__name__}}: {{error}}"

def named(seed, where=pattern, engine="reference"):
    return create_deterministic_dataloader(where, "train", 4, tokenizer, seed, 0, max_length=8, engine=engine)

rows = in_memory(40)
print("SEEN " + json.dumps({{
    "mine": said(lambda: named(3)),
    "engine": said(lambda: named(3, engine="auto")),
    "built": len(built),
    "absent": said(lambda: named(3, broken)),
    "seeds": said(lambda: named(rank)),
    "few": said(lambda: create_dataloader(create_streaming_dataset(rows, "train", tokenizer, 8), 30 if rank else 4)),
    "others": said(lambda: create_dataloader(create_streaming_dataset(
        rows if rank else rows.select(range(1, 40)), "train", tokenizer, 8), 4)),
}}), flush=True)
dist.destroy_process_group()
"""
_MP_DEVICE_LOADER = f"""{_DATASET}
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.debug.metrics as met
from tpuworker.api import create_dataloader
loader = create_dataloader(rows, {BATCH}, shuffle=True, seed=7)
device_loader = pl.MpDeviceLoader(loader, torch_xla.device())
taken, compiled = [], []
for batch in device_loader:
    taken.append(batch["input_ids"][:, 0].cpu().tolist())
    (batch["input_ids"].sum() + batch["attention_mask"].sum()).item()
    compiled.append(met.metric_data("CompileTime")[0])
    if len(taken) == 2:
        state = loader.state_dict(num_batches=2)
resumed = create_dataloader(rows, {BATCH}, shuffle=True, seed=7)
resumed.load_state_dict(state)
print("SEEN " + json.dumps({{
    "taken": taken, "rest": [b["input_ids"][:, 0].tolist() for b in resumed], "compiled": compiled,
}}), flush=True)
"""
#: The device loader ends as if the epoch were over where its source fails; the loop over the source itself raises.
_FAILING = """
import json
from datasets import Dataset
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from tpuworker.api import create_dataloader
from tpuworker.errors import DataError
rows = Dataset.from_dict({"input_ids": [[n] * (3 if n == 22 else 4) for n in range(40)]})
loader = create_dataloader(rows, 2)
before = loader.failure
taken = sum(1 for _ in pl.MpDeviceLoader(loader, torch_xla.device()))
kept = loader.failure
try:
    raised = sum(1 for _ in loader)
except DataError as error:
    raised = str(error)
print("SEEN " + json.dumps({"before": before, "taken": taken, "kept": str(kept), "raised": raised}), flush=True)
"""


def run_processes(program: str, world_size: int, **variables: str) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), port],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=900) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    lines = [next(line for line in out.splitlines() if line.startswith("SEEN ")) for out, _ in outputs]
    return [json.loads(line.removeprefix("SEEN ")) for line in lines]


def joined(seen: list[dict[str, Any]]) -> list[list[int]]:
    return [[n for part in step for n in part] for step in zip(*(each["mine"] for each in seen), strict=True)]


@pytest.mark.jax
def test_processes_of_jax_share_global_arrays_in_the_order_of_one_alone() -> None:
    pytest.importorskip("jax")
    from datasets import Dataset

    from tpuworker.api import create_jax_dataset

    seen = run_processes(_JAX, WORLD)
    rows = Dataset.from_dict({"input_ids": [[n] * 4 for n in range(ROWS)]})
    alone = [batch["input_ids"][:, 0].tolist() for batch in create_jax_dataset(rows, "train", BATCH, 7)]
    assert joined(seen) == alone
    assert seen[0]["sums"] == seen[1]["sums"] == [sum(batch) for batch in alone]
    assert seen[0]["shapes"] == seen[1]["shapes"] == [[BATCH, 4]] * (ROWS // BATCH)
    assert seen[0]["state"] == seen[1]["state"]


@pytest.mark.jax
def test_what_one_process_of_jax_saved_two_go_on_with() -> None:
    pytest.importorskip("jax")
    from datasets import Dataset

    from tpuworker.api import create_jax_dataset

    rows = Dataset.from_dict({"input_ids": [[n] * 4 for n in range(ROWS)]})
    alone = create_jax_dataset(rows, "train", BATCH, 7)
    batches = [batch["input_ids"][:, 0].tolist() for batch in alone]
    seen = run_processes(_JAX, WORLD, STATE=json.dumps(alone.state_dict(num_batches=2)))
    assert joined(seen) == batches[2:]


@pytest.mark.torch_xla
def test_a_process_group_of_torch_tells_the_ranks_though_torch_xla_knows_one_process() -> None:
    pytest.importorskip("torch_xla")
    from datasets import Dataset

    from tpuworker.api import create_dataloader

    seen = run_processes(_TORCH, WORLD)
    rows = Dataset.from_dict({"input_ids": [[n] * 4 for n in range(ROWS)]})
    alone = create_dataloader(rows, BATCH, 1, 0, shuffle=True, seed=7)
    assert joined(seen) == [batch["input_ids"][:, 0].tolist() for batch in alone]
    assert seen[0]["state"] == seen[1]["state"]


@pytest.mark.torch_xla
def test_ranks_that_can_talk_list_once_and_refuse_a_rank_that_has_other_data(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.api.builders import hub_like

    hub_like(tmp_path, [25, 15])
    first, second = run_processes(
        _SHARED,
        WORLD,
        CORPUS=f"{tmp_path}/data/*.parquet",
        BROKEN=f"{tmp_path}/*.parquet",
        XDG_CACHE_HOME=str(tmp_path),
    )
    assert sorted(first["mine"] + second["mine"]) == list(range(ROWS))
    assert (first["engine"], second["engine"]) == (first["mine"], second["mine"])
    assert (first["built"], second["built"]) == (2, 0)
    assert first["absent"].startswith("InputError: ")
    assert first["absent"].removeprefix("InputError: ") in second["absent"]
    assert "rank 1: seed: found 1; wanted 0, as here" in first["seeds"]
    assert "rank 0: seed: found 0; wanted 1, as here" in second["seeds"]
    assert "rank 1: found" in first["few"]
    assert "one global batch, 60" in first["few"]
    assert "one global batch, 60" in second["few"]
    assert "rank 1: source 0: rows: found 40; wanted 39, as here" in first["others"]
    assert "rank 0: source 0: content" in second["others"]


@pytest.mark.torch_xla
def test_behind_a_device_loader_that_reads_ahead_the_state_of_a_used_batch_resumes_exactly() -> None:
    pytest.importorskip("torch_xla")
    (seen,) = run_processes(_MP_DEVICE_LOADER, 1)
    assert len(seen["taken"]) == ROWS // BATCH
    assert seen["rest"] == seen["taken"][2:]
    assert len(set(seen["compiled"])) == 1


@pytest.mark.torch_xla
def test_an_error_that_a_device_loader_keeps_to_itself_is_the_loaders_failure() -> None:
    pytest.importorskip("torch_xla")
    (seen,) = run_processes(_FAILING, 1)
    assert seen["before"] is None
    assert seen["taken"] < 20
    assert "a row of 3 tokens; wanted 4" in seen["kept"]
    assert seen["raised"] == seen["kept"]
