"""Whole jobs on this machine with real hosts: equal batches, common failures, lost peers, a stop and its resume."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.session.builders import STEPS_PER_EPOCH, document_over, write_corpus
from tpulaunch.local import run
from tpulaunch.local.run import host_environments
from tpuworker.spec import load_job, wire

_TRAINER = """
import json, os, pathlib, signal

def main(session):
    rank = session.identity.host_rank
    with open(f"rows-{rank}.jsonl", "a") as rows:
        for batch in session.batches():
            ids = session.backend.local_rows(batch)["input_ids"]
            rows.write(json.dumps({"step": session.step, "rows": ids.tolist()}) + "\\n")
            rows.flush()
            session.report(session.step, float(ids.sum()))
            WHAT_HAPPENS
"""


class Machine:
    """A working directory with a corpus and a trainer, in which jobs are run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        write_corpus(directory)

    def run(
        self, hosts: int, what_happens: str = "pass", backend: str = "jax", **sections: Any
    ) -> tuple[int, str, str]:
        (self.directory / "trainer.py").write_text(_TRAINER.replace("WHAT_HAPPENS", what_happens))
        return self.run_document(hosts, document_over(self.directory, worker={"backend": backend}, **sections))

    def run_document(self, hosts: int, document: dict[str, Any], **switches: bool) -> tuple[int, str, str]:
        text = json.dumps(document)
        out, err = io.StringIO(), io.StringIO()
        code = run(load_job(text), text, num_hosts=hosts, is_raw=True, out=out, err=err, **switches)
        return code, out.getvalue(), err.getvalue()

    def rows(self, hosts: int) -> dict[int, list[list[int]]]:
        """Return the global batch of every step, joined from what the hosts saw, and forget it."""
        found: dict[int, list[list[int]]] = {}
        for rank in range(hosts):
            place = self.directory / f"rows-{rank}.jsonl"
            for line in place.read_text().splitlines():
                record = json.loads(line)
                found.setdefault(record["step"], []).extend(record["rows"])
            place.unlink()
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    return Machine(tmp_path)


def records(out: str, event: str) -> list[dict[str, Any]]:
    lines = [line.partition("| ")[2] for line in out.splitlines()]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [record for record in found if record.get("event") == event]


def verdicts(out: str) -> list[dict[str, Any]]:
    return [record["preflight"] for record in records(out, "preflight")]


pytestmark = pytest.mark.skipif(
    find_spec("jax") is None and find_spec("torch_xla") is None, reason="needs the extra jax or torch-xla"
)
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


@pytest.mark.jax
@needs_jax
def test_any_number_of_hosts_gives_the_same_global_batches_and_hash(machine: Machine) -> None:
    runs = {}
    for hosts in (1, 2):
        code, out, err = machine.run(hosts)
        assert code == 0, out + err
        runs[hosts] = (machine.rows(hosts), {verdict["data_hash"] for verdict in verdicts(out)})
        assert all(verdict["num_compiles"] == 1 for verdict in verdicts(out))
        assert {verdict["num_steps"] for verdict in verdicts(out)} == {STEPS_PER_EPOCH}
        assert [record["exit_code"] for record in records(out, "end")] == [0] * hosts
    assert runs[1] == runs[2]
    assert len(runs[1][0]) == STEPS_PER_EPOCH


@pytest.mark.jax
@needs_jax
def test_a_reader_that_fails_on_one_host_ends_all_at_the_same_step_with_its_words(machine: Machine) -> None:
    fail = "if rank == 1 and session.step == 4: session._loader.close(); session._loader._next = None"
    code, out, err = machine.run(2, fail)
    ends = records(out, "end")
    assert code == 1
    assert {record["host"] for record in ends} == {"0/0", "1/0"}
    assert len({record["step"] for record in ends}) == 1
    assert all(record["failed_host"] == "1/0" for record in ends)
    assert all("loader: found it is closed" in record["message"] for record in ends)
    assert "failed first, with exit code 1" in err


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("jax", marks=[pytest.mark.jax, needs_jax]),
        pytest.param(
            "torch_xla",
            marks=[
                pytest.mark.torch_xla,
                pytest.mark.skipif(find_spec("torch_xla") is None, reason="torch_xla is not installed"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("failing", [0, 1])
def test_a_trainers_own_error_on_one_host_is_everybodys_last_word(machine: Machine, backend: str, failing: int) -> None:
    code, out, err = machine.run(2, f"if rank == {failing} and session.step == 4: raise KeyError('mine')", backend)
    assert code == 1, out + err
    ends = {record["host"]: record for record in records(out, "end")}
    assert set(ends) == {"0/0", "1/0"}
    for record in ends.values():
        assert (record["exit_code"], record["reason"], record["failed_host"]) == (1, "KeyError", f"{failing}/0")
        assert "'mine'" in record["message"]
    assert ends[f"{1 - failing}/0"]["message"].startswith(f"host {failing}/0: KeyError: ")
    assert f"host {failing}/0 failed first, with exit code 1: 'mine'" in err


@pytest.mark.jax
@needs_jax
def test_hosts_stop_together_on_one_hosts_sigterm_and_another_number_of_hosts_goes_on(machine: Machine) -> None:
    sections = {"checkpoint": {"dir": str(machine.directory / "ck")}}
    assert machine.run(1)[0] == 0
    whole = machine.rows(1)
    code, out, _ = machine.run(
        2, "if rank == 1 and session.step == 5: os.kill(os.getpid(), signal.SIGTERM)", **sections
    )
    assert code == 42
    ends = {record["host"]: record for record in records(out, "end")}
    assert len({record["step"] for record in ends.values()}) == 1
    assert ends["1/0"]["message"].endswith(", as asked (SIGTERM)")
    assert ends["0/0"]["message"].endswith(", as another host was asked (SIGTERM)")
    first = machine.rows(2)
    code, out, _ = machine.run(1, **sections)
    assert code == 0
    second = machine.rows(1)
    assert sorted([*first, *second]) == list(range(1, STEPS_PER_EPOCH + 1))
    assert first | second == whole


@pytest.mark.jax
@needs_jax
def test_a_resume_in_changed_data_is_refused_unless_the_change_is_accepted(machine: Machine) -> None:
    document = document_over(machine.directory, checkpoint={"dir": str(machine.directory / "ck")})
    stop = "if session.step == 5: os.kill(os.getpid(), signal.SIGTERM)"
    (machine.directory / "trainer.py").write_text(_TRAINER.replace("WHAT_HAPPENS", stop))
    assert machine.run_document(1, document)[0] == 42
    document["spec"]["data"]["shuffle"] = {"seed": 4}
    code, out, _ = machine.run_document(1, document)
    assert code == 1
    (end,) = records(out, "end")
    assert "seed: found 4; wanted 3, as in the run that is resumed" in end["message"]
    assert "--accept-changed-data" in end["message"]

    code, out, err = machine.run_document(1, document, accept_changed_data=True)
    assert code == 0, out + err
    assert records(out, "end")[0]["step"] == STEPS_PER_EPOCH


@pytest.mark.jax
@needs_jax
def test_restarts_of_a_job_that_accepted_a_change_accept_no_further_one(machine: Machine) -> None:
    document = document_over(machine.directory, checkpoint={"dir": str(machine.directory / "ck")})

    def attempt(number: int, seed: int, last_step: int = STEPS_PER_EPOCH) -> tuple[int, dict[str, Any]]:
        stop = f"if session.step == {last_step}: os.kill(os.getpid(), signal.SIGTERM)"
        (machine.directory / "trainer.py").write_text(_TRAINER.replace("WHAT_HAPPENS", stop))
        document["spec"]["data"]["shuffle"] = {"seed": seed}
        spec, scratch = machine.directory / "job.yaml", machine.directory / str(number)
        spec.write_text(json.dumps(document))
        scratch.mkdir()
        shared = {wire.ENV_SPEC: str(spec), wire.ENV_ACCEPT_CHANGED_DATA: "1", wire.ENV_SUBMISSION: "first"}
        (environment,) = host_environments(load_job(spec.read_text()), os.environ, shared, scratch)
        command = [sys.executable, "-m", "tpuworker"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        return ended.returncode, next(line for line in lines if line.get("event") == "end")

    assert attempt(0, seed=3, last_step=4)[0] == 42
    assert attempt(1, seed=4, last_step=8)[0] == 42
    code, end = attempt(2, seed=5)
    assert code == 1
    assert "seed: found 5; wanted 4" in end["message"]
    assert "not the change that was accepted" in end["message"]
    assert attempt(3, seed=4)[1]["step"] == STEPS_PER_EPOCH


@pytest.mark.jax
@needs_jax
def test_a_lost_peer_asks_for_a_restart_and_the_cause_is_told(machine: Machine) -> None:
    what = "if rank == 1 and session.step == 4: os.kill(os.getpid(), signal.SIGKILL)"
    code, out, err = machine.run(2, what)
    assert code == 137
    assert "host 1/0 failed first, with exit code 137: the worker was ended by SIGKILL" in err
    assert {record["host"]: record["exit_code"] for record in records(out, "end")} == {"0/0": 42, "1/0": 137}


@pytest.mark.jax
@needs_jax
def test_hosts_with_other_code_are_refused_before_a_step_and_named(machine: Machine) -> None:
    for slice_index in (0, 1):
        (machine.directory / f"own_{slice_index}.py").write_text(f"x = {slice_index}\n")
    document = document_over(machine.directory)
    document["spec"]["train"]["entrypoint"] = "differing.main"
    (machine.directory / "differing.py").write_text(
        "import importlib, os\nimportlib.import_module('own_' + os.environ['TPULAUNCH_SLICE_INDEX'])\n"
        "def main(session): raise AssertionError('trained')\n"
    )
    code, out, err = machine.run_document(2, document)
    assert code == 3
    (fault,) = verdicts(out)[0]["faults"]
    assert fault["path"] == "your code"
    assert "on host 1/0" in fault["found"]
    assert "pin the image" in fault["hint"]
    assert "trained" not in out + err


@pytest.mark.jax
@needs_jax
def test_a_host_whose_copy_of_a_file_has_other_bytes_is_refused_and_named(machine: Machine) -> None:
    for slice_index in (0, 1):
        (machine.directory / f"disk-{slice_index}").mkdir()
        write_corpus(machine.directory / f"disk-{slice_index}")
    copy = machine.directory / "disk-1" / "part-1.parquet"
    content = bytearray(copy.read_bytes())
    content[content.index(b"w0") + 1] ^= 1  # as many rows, the same footer, another word
    copy.write_bytes(content)
    document = document_over(Path(), train={"entrypoint": "on_own_disk.main"})
    (machine.directory / "on_own_disk.py").write_text(
        "import os\nos.chdir('disk-' + os.environ['TPULAUNCH_SLICE_INDEX'])\n"
        "def main(session): raise AssertionError('trained')\n"
    )
    code, out, err = machine.run_document(2, document)
    assert code == 3, out + err
    for verdict in verdicts(out):
        (fault,) = verdict["faults"]
        assert fault["path"] == "file part-1.parquet"
        assert "on host 1/0" in fault["found"]
        assert f"{len(content):,} bytes with digest " in fault["found"]
        assert f"{len(content):,} bytes with digest " in fault["wanted"]
    assert "file part-1.parquet" in records(out, "end")[0]["message"]
    assert "trained" not in out + err


@pytest.mark.jax
@needs_jax
def test_an_archive_that_is_cut_after_the_start_ends_all_hosts_at_one_step_with_file_and_byte(machine: Machine) -> None:
    """Input 3 of the loaders study, found later: the third of five archives, half of it gone on one host's disk."""
    for disk in ("disk-0", "disk-1"):
        (machine.directory / disk).mkdir()
        write_corpus(machine.directory / disk)
        for number in range(5):
            lines = "".join(json.dumps({"text": f"w{row % 50} w{row // 50 % 50}"}) + "\n" for row in range(40_000))
            (machine.directory / disk / f"{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1, mtime=0))
    size_bytes = (machine.directory / "disk-1/2.jsonl.gz").stat().st_size // 2
    (machine.directory / "cutting.py").write_text(
        "import os\nos.chdir('disk-' + os.environ['TPULAUNCH_SLICE_INDEX'])\n"
        "def main(session):\n"
        f"    if session.identity.host_rank == 1: os.truncate('2.jsonl.gz', {size_bytes})\n"
        "    for _ in session.batches(): pass\n"
    )
    document = document_over(
        Path(),
        train={"entrypoint": "cutting.main", "log_every_steps": 1000},
        data={"sources": [{"files": "*.jsonl.gz"}], "global_batch_size": 512, "shuffle": {"order": "sequential"}},
    )
    code, out, err = machine.run_document(2, document)
    ends = records(out, "end")
    assert code == 2, out + err
    assert {record["host"] for record in ends} == {"0/0", "1/0"}
    (step,) = {record["step"] for record in ends}
    assert 0 < step <= 2 * 40_000 // 512  # nothing that lies behind the second archive was trained on
    for record in ends:
        assert record["failed_host"] == "1/0"
        assert f"2.jsonl.gz: found the gz stream cut off at byte {size_bytes:,}" in record["message"]


@pytest.mark.jax
@needs_jax
def test_a_program_that_attaches_gets_the_proof_the_session_and_the_exit_codes(machine: Machine) -> None:
    script = machine.directory / "train.py"
    document = document_over(machine.directory)
    document["spec"]["train"] = {"command": ["python", "train.py"]}
    steps = "import tpuworker.session\nsession = tpuworker.session.attach()\nfor batch in session.batches(): pass\n"
    script.write_text(steps)
    code, out, _ = machine.run_document(1, document)
    assert code == 0
    assert verdicts(out)[0]["verdict"] == "passed"
    assert records(out, "end")[0]["message"] == f"all {STEPS_PER_EPOCH} steps done"
    script.write_text(steps + "raise KeyError('mine')\n")
    code, out, _ = machine.run_document(1, document)
    assert code == 1
    assert records(out, "end")[0]["reason"] == "KeyError"


@pytest.mark.torch_xla
@pytest.mark.skipif(find_spec("torch_xla") is None, reason="torch_xla is not installed")
def test_torch_xla_hosts_train_on_the_same_batches_and_learn_together(machine: Machine) -> None:
    document = document_over(machine.directory, worker={"backend": "torch_xla"}, data={"epochs": 2})
    document["spec"]["train"] = {
        "entrypoint": "tpuworker.training.torch_xla_lm.main",
        "args": {"width": 16, "layers": 1, "heads": 2, "learning_rate": 0.02},
        "log_every_steps": 1,
    }
    code, out, err = machine.run_document(2, document)
    assert code == 0, out + err
    assert all(verdict["num_compiles"] == 1 for verdict in verdicts(out))
    losses = [(record["step"], record["host"], record["loss"]) for record in records(out, "progress")]
    last = max(step for step, _, _ in losses)
    assert last == 2 * STEPS_PER_EPOCH
    mean = {step: sum(loss for at, _, loss in losses if at == step) / 2 for step in (1, last)}
    assert mean[last] < mean[1] - 0.5
    warned = [line for line in out.splitlines() if "new compilations" in line]
    assert warned == []
