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
import json, sys
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


def run_processes(program: str, world_size: int) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {**os.environ, "PJRT_DEVICE": "CPU", "TF_CPP_MIN_LOG_LEVEL": "2"}
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
def test_behind_a_device_loader_that_reads_ahead_the_state_of_a_used_batch_resumes_exactly() -> None:
    pytest.importorskip("torch_xla")
    (seen,) = run_processes(_MP_DEVICE_LOADER, 1)
    assert len(seen["taken"]) == ROWS // BATCH
    assert seen["rest"] == seen["taken"][2:]
    assert len(set(seen["compiled"])) == 1
