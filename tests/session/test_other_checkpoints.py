"""Other people's checkpoint libraries keep a session's place: saved by one host, gone on with by two, then by one."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.session.builders import document_over, write_corpus
from tpulaunch.local import run
from tpuworker.spec import load_job

NUM_STEPS = 14
#: Orbax meets through jax.distributed, which a JAX session has begun. Beside torch_xla it knows this process only, so
#: the first host writes; every host is asked for the state, since each knows its own lanes.
_ORBAX = """
import jax
import orbax.checkpoint as ocp

def place():
    return ocp.CheckpointManager(os.path.abspath("kept"))

def save(session):
    state = session.state_dict()
    if session.is_first_host or jax.process_count() > 1:
        with place() as manager:
            manager.save(session.step, args=ocp.args.Composite(data=ocp.args.JsonSave(state)))

def restore(session):
    with place() as manager:
        if manager.latest_step() is not None:
            kept = manager.restore(manager.latest_step(), args=ocp.args.Composite(data=ocp.args.JsonRestore()))
            session.load_state_dict(kept["data"])
"""
#: torch.distributed meets by itself in a torch_xla session; a JAX program begins it for its checkpoints.
_TORCH = """
import pathlib
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

def meet(session):
    hosts, rank = session.identity.num_hosts, session.identity.host_rank
    if hosts > 1 and not dist.is_initialized():
        meeting = f"file://{os.path.abspath('meeting')}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=hosts)
    return {"no_dist": hosts == 1}

def save(session):
    checkpoint.save({"data": session}, checkpoint_id=f"kept/{session.step}", **meet(session))

def restore(session):
    steps = sorted(int(path.name) for path in pathlib.Path("kept").glob("*"))
    if steps:
        checkpoint.load({"data": session}, checkpoint_id=f"kept/{steps[-1]}", **meet(session))
"""
_TRAINER = """
import json, os
KEEPER

def main(session):
    restore(session)
    with open(f"rows-{session.identity.host_rank}.jsonl", "w") as rows:
        for batch in session.batches():
            local = session.backend.local_rows(batch)
            record = {name: local[name].tolist() for name in ("input_ids", "segment_ids", "labels")}
            rows.write(json.dumps({"step": session.step, **record}) + "\\n")
            if session.step == session.args["last_step"]:
                save(session)
                break
"""


def trained(directory: Path, backend: str, hosts: int, last_step: int) -> dict[int, Any]:
    """Run the job up to a step, where it is saved, and return the global batches by step."""
    document = document_over(
        directory,
        worker={"backend": backend},
        data={"layout": "pack", "packing": {"form": "stream"}},
        train={"steps": NUM_STEPS, "args": {"last_step": last_step}},
    )
    text, out, err = json.dumps(document), io.StringIO(), io.StringIO()
    code = run(load_job(text), text, num_hosts=hosts, is_raw=True, out=out, err=err)
    assert code == 0, out.getvalue()[-3000:] + err.getvalue()
    found: dict[int, Any] = {}
    for rank in range(hosts):
        place = directory / f"rows-{rank}.jsonl"
        for line in place.read_text().splitlines():
            record = json.loads(line)
            batch = found.setdefault(record.pop("step"), {})
            for name, rows in record.items():
                batch.setdefault(name, []).extend(rows)
        place.unlink()
    return found


def needs(*libraries: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a test: the environment that has torch_xla has all of them, the other one JAX and Orbax."""
    mark = pytest.mark.torch_xla if {"torch", "torch_xla"} & set(libraries) else pytest.mark.jax
    absent = [name for name in libraries if find_spec(name) is None]
    return mark, pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


@pytest.mark.parametrize(
    ("backend", "keeper"),
    [
        pytest.param("jax", _ORBAX, marks=needs("jax", "orbax"), id="jax-orbax"),
        pytest.param("jax", _TORCH, marks=needs("jax", "torch"), id="jax-torch"),
        pytest.param("torch_xla", _ORBAX, marks=needs("torch_xla", "orbax"), id="torch_xla-orbax"),
        pytest.param("torch_xla", _TORCH, marks=needs("torch_xla"), id="torch_xla-torch"),
    ],
)
def test_a_session_goes_on_from_a_checkpoint_on_more_hosts_and_on_fewer(
    backend: str, keeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "trainer.py").write_text("def restore(session): pass\n" + _TRAINER.replace("KEEPER", ""))
    whole = trained(tmp_path, backend, hosts=1, last_step=0)
    assert sorted(whole) == list(range(1, NUM_STEPS + 1))
    (tmp_path / "trainer.py").write_text(_TRAINER.replace("KEEPER", keeper))
    parts = [trained(tmp_path, backend, hosts, last) for hosts, last in ((1, 4), (2, 9), (1, NUM_STEPS))]
    assert [sorted(part) for part in parts] == [list(range(1, 5)), list(range(5, 10)), list(range(10, NUM_STEPS + 1))]
    assert parts[0] | parts[1] | parts[2] == whole
