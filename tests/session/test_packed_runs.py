"""A job that packs documents, as they come or exactly, stopped by SIGTERM and resumed on other numbers of hosts."""

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

pytestmark = [pytest.mark.jax, pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")]
#: Under ``exact`` they reach into the second epoch, under ``stream`` every lane comes to its own.
NUM_STEPS = 14
_TRAINER = """
import json, os, signal

def main(session):
    rank = session.identity.host_rank
    with open(f"rows-{rank}.jsonl", "a") as rows:
        for batch in session.batches():
            local = session.backend.local_rows(batch)
            record = {name: local[name].tolist() for name in ("input_ids", "segment_ids", "position_ids", "labels")}
            rows.write(json.dumps({"step": session.step, **record}) + "\\n")
            rows.flush()
            if rank == session.identity.num_hosts - 1 and session.step == STOP_AFTER:
                os.kill(os.getpid(), signal.SIGTERM)
"""


def trained(directory: Path, form: str, hosts: int, stop_after: int = 0, **sections: Any) -> tuple[int, dict[int, Any]]:
    """Run the job and return its exit code and the global batches by step, forgetting these."""
    (directory / "trainer.py").write_text(_TRAINER.replace("STOP_AFTER", str(stop_after)))
    document = document_over(
        directory,
        data={"layout": "pack", "packing": {"form": form}, "epochs": 2},
        train={"steps": NUM_STEPS},
        **sections,
    )
    text = json.dumps(document)
    code = run(load_job(text), text, num_hosts=hosts, is_raw=True, out=io.StringIO(), err=io.StringIO())
    found: dict[int, Any] = {}
    for rank in range(hosts):
        place = directory / f"rows-{rank}.jsonl"
        for line in place.read_text().splitlines():
            record = json.loads(line)
            batch = found.setdefault(record.pop("step"), {})
            for name, rows in record.items():
                batch.setdefault(name, []).extend(rows)
        place.unlink()
    return code, found


@pytest.mark.parametrize("form", ["exact", "stream"])
def test_rows_and_segments_after_two_stops_are_those_of_the_uninterrupted_run(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    code, whole = trained(tmp_path, form, hosts=1)
    assert code == 0
    assert sorted(whole) == list(range(1, NUM_STEPS + 1))
    assert any(max(row) > 1 for row in whole[1]["segment_ids"])  # rows do hold several documents
    checkpoint = {"dir": str(tmp_path / "ck")}
    parts = []
    for hosts, stop_after, ends_with in ((1, 4, 42), (2, 9, 42), (1, 0, 0)):
        code, part = trained(tmp_path, form, hosts, stop_after, checkpoint=checkpoint)
        assert code == ends_with
        parts.append(part)
    assert sorted(step for part in parts for step in part) == sorted(whole)
    assert len(parts) == 3 == sum(bool(part) for part in parts)
    assert parts[0] | parts[1] | parts[2] == whole
