"""torch.distributed.checkpoint keeps a session's place in the data, since a session is Stateful."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.session.builders import STEPS_PER_EPOCH, write_corpus

pytestmark = pytest.mark.torch_xla

#: SPMD of torch_xla stays on for the rest of a process, so each session has one of its own.
PROGRAM = """
import json, sys
from pathlib import Path
import torch.distributed.checkpoint as checkpoint
from tests.session.test_training_loop import Bench, ids_of
directory, does_restore = Path(sys.argv[1]), sys.argv[2] == "restore"
bench = Bench(directory, directory)
session = bench.open(worker={"backend": "torch_xla"})
kept = {"checkpoint_id": directory / "kept", "no_dist": True}
if does_restore:
    checkpoint.load({"data": session}, **kept)
first, seen = session.step, []
for batch in session.batches():
    seen.append(ids_of(session, batch).hex())
    if session.step == 3:
        checkpoint.save({"data": session}, **kept)
bench.close()
print("SEEN " + json.dumps([first, seen]))
"""


def run(directory: Path, mode: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), mode],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PJRT_DEVICE": "CPU"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("SEEN "))
    return json.loads(line.removeprefix("SEEN "))


def test_a_session_is_saved_and_restored_as_any_stateful_object(tmp_path: Path) -> None:
    pytest.importorskip("torch_xla")
    write_corpus(tmp_path)
    first, whole = run(tmp_path, "save")
    assert (first, len(whole)) == (0, STEPS_PER_EPOCH)
    assert run(tmp_path, "restore") == [3, whole[3:]]
