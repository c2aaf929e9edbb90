"""The session on JAX, one host in this process: the loop, its state, its end, and what it tells while it runs."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from tests.session.builders import BATCH, LENGTH, STEPS_PER_EPOCH, document_over, write_corpus
from tpuworker.backends import Backend
from tpuworker.errors import DataError, IdentityError, PreflightError, SpecError
from tpuworker.report import Reporter
from tpuworker.session import Session
from tpuworker.session.opening import Opening, read_setting
from tpuworker.session.running import Run, load_entrypoint
from tpuworker.signals import StopRequest

pytestmark = pytest.mark.jax


class Bench:
    """A directory with a corpus, in which sessions are opened."""

    def __init__(self, directory: Path, corpus: Path) -> None:
        self.directory = directory
        self.corpus = corpus
        self.log = io.StringIO()
        self.stop = StopRequest()
        self.sessions: list[Session] = []
        self._handler = signal.getsignal(signal.SIGTERM)

    def close(self) -> None:
        for session in self.sessions:
            session.close()
            session.backend.stop()
        signal.signal(signal.SIGTERM, self._handler)

    def run(self, *, metrics_port: int = 0, **sections: Any) -> Run:
        (self.directory / "job.yaml").write_text(json.dumps(document_over(self.corpus, **sections)))
        environment = {
            "TPULAUNCH_SPEC": str(self.directory / "job.yaml"),
            "TPULAUNCH_STATE_DIR": str(self.directory / "state"),
            "TPULAUNCH_TERMINATION_LOG": str(self.directory / "termination-log"),
            "TPULAUNCH_METRICS_PORT": str(metrics_port),
            "PJRT_DEVICE": "CPU",
        }
        return Run(read_setting(environment), Reporter("json", "0/0", self.log))

    def open(self, **sections: Any) -> Session:
        run = self.run(**sections)
        opening = Opening(run.setting, run.reporter, self.stop, run.fail)
        session = opening.open()
        self.sessions.append(session)
        return session

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [record for record in found if event is None or record.get("event") == event]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    write_corpus(directory)
    return directory


@pytest.fixture
def bench(tmp_path: Path, corpus: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, corpus)
    yield bench
    bench.close()


def ids_of(session: Session, batch: dict[str, Any]) -> bytes:
    return session.backend.local_rows(batch)["input_ids"].tobytes()


def test_an_epoch_gives_every_step_once_in_one_shape_and_preflight_has_seen_its_end(bench: Bench) -> None:
    session = bench.open()
    assert session.num_steps == STEPS_PER_EPOCH
    shapes = {tuple(batch["input_ids"].shape) for batch in session.batches()}
    assert shapes == {(BATCH, LENGTH)}
    assert session.step == STEPS_PER_EPOCH
    verdict = session.verdict
    assert (verdict.verdict, verdict.num_batches, verdict.num_last_batches) == ("passed", 4, 2)
    assert (verdict.num_compiles, verdict.num_steps) == (1, STEPS_PER_EPOCH)
    assert json.loads((bench.directory / "state" / "verdict.json").read_text())["data_hash"] == verdict.data_hash
    (line,) = bench.records("preflight")
    assert (line["verdict"], line["preflight"]["num_compiles"]) == ("passed", 1)


def test_state_taken_at_a_step_gives_the_tail_of_the_run(bench: Bench) -> None:
    session = bench.open(data={"epochs": 2})
    seen, state = [], {}
    for batch in session.batches():
        seen.append(ids_of(session, batch))
        if session.step == 7:
            state = session.state_dict()
    again = bench.open(data={"epochs": 2})
    again.load_state_dict(json.loads(json.dumps(state)))
    assert again.step == 7
    assert [ids_of(again, batch) for batch in again.batches()] == seen[7:]


def test_state_of_other_data_is_refused_with_the_difference(bench: Bench) -> None:
    state = bench.open(data={"shuffle": {"seed": 4}}).state_dict()
    with pytest.raises(DataError, match="seed"):
        bench.open().load_state_dict(state)


def test_a_stop_request_lets_the_next_step_end_the_loop_and_saves_the_cursor(bench: Bench) -> None:
    run = bench.run(checkpoint={"dir": str(bench.directory / "ck")})
    steps = []
    session = run.opening.open()
    bench.sessions.append(session)
    for _ in session.batches():
        steps.append((session.step, session.should_stop))
        if session.step == 3:
            run.stop.set()
    last = steps[-1]
    assert last[1]
    assert 4 <= last[0] <= 5
    assert [stopping for _, stopping in steps[:-1]] == [False] * (len(steps) - 1)
    assert run.succeed() == 42
    words = json.loads((bench.directory / "termination-log").read_text())
    assert (words["exit_code"], words["reason"], words["step"]) == (42, "RetryError", last[0])
    assert words["preflight"]["verdict"] == "passed"
    resumed = bench.open(checkpoint={"dir": str(bench.directory / "ck")})
    assert resumed.step == last[0]
    assert len(list(resumed.batches())) == STEPS_PER_EPOCH - last[0]


def test_the_cursor_is_saved_every_so_many_steps(bench: Bench) -> None:
    session = bench.open(checkpoint={"dir": str(bench.directory / "ck"), "every_steps": 4, "keep": 9})
    for _ in session.batches():
        if session.step == 10:
            break
    assert sorted(path.name for path in (bench.directory / "ck").iterdir()) == [
        "cursor-0000000004.json",
        "cursor-0000000008.json",
    ]


def test_progress_lines_carry_loss_step_and_rate(bench: Bench) -> None:
    session = bench.open()
    for _ in session.batches():
        session.report(session.step, loss=1.0 / session.step, learning_rate=0.5)
    lines = bench.records("progress")
    assert [line["step"] for line in lines] == [1, 5, 10, 15, STEPS_PER_EPOCH]
    assert lines[1]["loss"] == 0.2
    assert lines[1]["learning_rate"] == 0.5
    assert lines[1]["num_steps"] == STEPS_PER_EPOCH
    assert lines[1]["tokens_per_second"] > 0
    assert "steps_per_second" not in lines[0]  # the first step compiles
    assert lines[1]["stages"]["transfer"]["rows"] >= 5 * BATCH


def test_a_compilation_in_the_middle_is_reported_with_the_functions_name(bench: Bench) -> None:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def scaled(x: jax.Array, by: jax.Array) -> jax.Array:
        return x * by

    session = bench.open()
    for batch in session.batches():
        size = 1 if session.step < 10 else LENGTH
        scaled(batch["input_ids"], jnp.ones(size, jnp.int32))
    warnings = [record["message"] for record in bench.records() if record["severity"] == "WARNING"]
    assert len(warnings) == 1
    assert "after step 10" in warnings[0]
    assert "scaled" in warnings[0]
    assert "cause is in the training code" in warnings[0]


def test_a_compilation_in_the_middle_ends_the_job_where_the_spec_says_so(bench: Bench) -> None:
    import jax

    session = bench.open(preflight={"batches": 4, "on_recompile": "fail"})

    def train() -> None:
        for _ in session.batches():
            if session.step == 8:
                jax.jit(lambda: jax.numpy.arange(17) * 3)()

    with pytest.raises(PreflightError, match="new compilations after step 8"):
        train()
    assert session.step <= 10


def test_a_reader_that_fails_ends_the_loop_with_its_own_error(bench: Bench, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bench.corpus, copy)
    document = {"data": {"sources": [{"files": f"{copy}/part-*.parquet"}], "shuffle": {"order": "sequential"}}}
    session = bench.open(**document)
    (copy / "part-2.parquet").write_bytes(b"gone")
    session.load_state_dict(session.state_dict())  # a new loader, that has read nothing yet

    def train() -> None:
        for _ in session.batches():
            pass

    with pytest.raises(DataError, match="part-2"):
        train()
    assert 0 < session.step < STEPS_PER_EPOCH


def test_two_loops_at_once_are_refused(bench: Bench) -> None:
    session = bench.open()
    batches = session.batches()
    next(batches)
    with pytest.raises(RuntimeError, match="being iterated already"):
        next(session.batches())
    with pytest.raises(RuntimeError, match="load before it"):
        session.load_state_dict(session.state_dict())


def test_another_number_of_devices_than_the_spec_names_is_refused(bench: Bench) -> None:
    run = bench.run(slice={"topology": "2x2"})
    with pytest.raises(IdentityError, match="1 cpu devices; wanted 4"):
        run.opening.open()


@pytest.mark.parametrize(
    ("path", "words"),
    [("no_such_package.main", "no module no_such_package"), ("json.no_such_function", "no function no_such_function")],
)
def test_an_entrypoint_that_is_not_there_is_a_fault_of_the_spec(path: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        load_entrypoint(path)


def in_module(source: str) -> Callable[[Bench, pytest.MonkeyPatch], None]:
    def write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        (bench.directory / "trainer.py").write_text(source)
        monkeypatch.syspath_prepend(str(bench.directory))
        monkeypatch.delitem(sys.modules, "trainer", raising=False)

    return write


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("def main(session):\n    for _ in session.batches(): pass\n", 0, "all 16 steps done"),
        ("def main(session): raise ValueError('mine')\n", 1, "mine"),
        ("def main(session): raise SystemExit(7)\n", 7, "ended the process with 7"),
        ("def main(session): next(session.batches())\n", 0, "training returned after step 1 of 16"),
        ("import no_such_library\n", 1, "no_such_library"),
    ],
)
def test_a_training_functions_end_becomes_the_exit_code_and_the_last_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, source: str, code: int, words: str
) -> None:
    in_module(source)(bench, monkeypatch)
    assert bench.run().train() == code
    record = json.loads((bench.directory / "termination-log").read_text())
    assert record["exit_code"] == code
    assert words in record["message"]


def test_the_backend_of_a_session_is_the_started_one(bench: Bench) -> None:
    backend: Backend = bench.open().backend
    assert (backend.name, backend.num_devices) == ("jax", 1)
