"""Packed rows, bad records and other people's checkpoint libraries, in a session on one host."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("jax")

from tests.session.builders import BATCH, LENGTH, document_over
from tests.session.test_training_loop import Bench, ids_of
from tests.tasks.test_conversations import MARKED
from tests.tokens.families import END, byte_level_bpe
from tpuworker.describe import describe_plan
from tpuworker.errors import DataError
from tpuworker.spec import load_job

pytestmark = pytest.mark.jax


@pytest.mark.parametrize("form", ["exact", "stream"])
def test_packed_rows_are_proved_trained_and_resumed_like_others(bench: Bench, form: str) -> None:
    data = {"layout": "pack", "packing": {"form": form}, "epochs": 2}
    train = {"steps": 12}
    session = bench.open(data=data, train=train)
    seen, state = [], {}
    for batch in session.batches():
        assert {name: array.shape[1] for name, array in batch.items()} == dict.fromkeys(batch, LENGTH)
        assert {"segment_ids", "position_ids"} <= batch.keys()
        seen.append(ids_of(session, batch))
        if session.step == 5:
            state = session.state_dict()
    assert session.verdict.num_compiles == 1
    again = bench.open(data=data, train=train)
    again.load_state_dict(state)
    assert [ids_of(again, batch) for batch in again.batches()] == seen[5:]


def test_bad_records_are_told_with_file_and_row_and_counted(bench: Bench, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "part-0.parquet")
    texts = table["text"].to_pylist()
    texts[4] = None
    pq.write_table(pa.table({"text": texts}), tmp_path / "part-0.parquet")
    session = bench.open(data={"on_bad_record": "mask"})
    for _ in session.batches():
        pass
    told = [record["message"] for record in bench.records() if record["severity"] == "WARNING"]
    assert len([message for message in told if "part-0.parquet, row 5: null" in message]) == 1
    assert bench.records("progress")[-1]["bad"] == {"null": 1}


def test_records_that_take_no_place_in_packed_rows_are_told_with_file_and_row(bench: Bench, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part in (0, 1):
        texts = pq.read_table(tmp_path / f"part-{part}.parquet")["text"].to_pylist()
        texts[4 + 30 * part] = None
        pq.write_table(pa.table({"text": texts}), tmp_path / f"part-{part}.parquet", row_group_size=20)
    data = {"on_bad_record": "mask", "layout": "pack", "packing": {"form": "exact"}, "cache": str(tmp_path / "cache")}
    for _ in range(2):  # measured, then found in the cache
        bench.open(data=data)
        told = [record["message"] for record in bench.records() if "take no place" in record["message"]]
        (named,) = {message.partition(": 2 documents without tokens take no place ")[2] for message in told}
        places = f"{tmp_path}/part-0.parquet, row 5: null; {tmp_path}/part-1.parquet, row 35: null"
        assert named == f"(2 null): {places}"


@pytest.mark.skipif(find_spec("orbax") is None, reason="orbax-checkpoint is not installed")
def test_orbax_keeps_the_datas_state_beside_the_weights(bench: Bench, tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    session = bench.open()
    seen = []
    with ocp.CheckpointManager(tmp_path / "orbax", options=ocp.CheckpointManagerOptions(create=True)) as manager:
        for batch in session.batches():
            seen.append(ids_of(session, batch))
            if session.step == 3:
                manager.save(3, args=ocp.args.Composite(data=ocp.args.JsonSave(session.state_dict())))
        manager.wait_until_finished()
        restored = manager.restore(3, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
    again = bench.open()
    again.load_state_dict(restored["data"])
    assert [ids_of(again, batch) for batch in again.batches()] == seen[3:]


def test_conversations_that_only_the_task_finds_bad_are_left_out_before_steps_are_counted(
    bench: Bench, tmp_path: Path
) -> None:
    write_conversations(tmp_path, num_rows=40, bad={3: "narrator", 17: "narrator", 30: "", 31: ""})
    data = {
        "task": "conversation",
        "sources": [{"files": f"{tmp_path}/talks.jsonl"}],
        "tokenizer": {"path": f"{tmp_path}/chat/tokenizer.json", "engine": "reference"},
        "max_length": 32,
        "on_bad_record": {"skip": {"limit": 4}},
    }
    session = bench.open(data=data)
    assert session.num_steps == 36 // BATCH
    assert sum(len(batch["input_ids"]) for batch in session.batches()) == 36 // BATCH * BATCH
    told = [record["message"] for record in bench.records() if record["severity"] == "WARNING"]
    assert [message.rpartition("talks.jsonl, ")[2] for message in told if message.startswith("left out")] == [
        "row 4: unknown-role",
        "row 18: unknown-role",
        "row 31: empty-conversation",
        "row 32: empty-conversation",
    ]
    described = describe_plan(session.job)
    assert described["plan"]["num_steps"] == session.num_steps
    assert len(described["sources"][0]["dropped"]) == 4
    with pytest.raises(DataError, match="found 4 bad records; wanted at most 3"):
        bench.open(data=data | {"on_bad_record": {"skip": {"limit": 3}}})


@pytest.mark.parametrize("learns", ["mask", "fail"])
def test_conversations_with_nothing_to_learn_are_bad_only_if_the_spec_says_so(tmp_path: Path, learns: str) -> None:
    write_conversations(tmp_path, num_rows=20, bad={})
    lines = (tmp_path / "talks.jsonl").read_text().splitlines()
    lines[6] = json.dumps({"messages": [{"role": "user", "content": "nobody answers"}]})
    (tmp_path / "talks.jsonl").write_text("\n".join(lines) + "\n")
    job = load_job(
        json.dumps(
            document_over(
                tmp_path,
                data={
                    "task": "conversation",
                    "sources": [{"files": f"{tmp_path}/talks.jsonl"}],
                    "tokenizer": {"path": f"{tmp_path}/chat/tokenizer.json", "engine": "reference"},
                    "max_length": 32,
                    "on_bad_record": {"skip": {"limit": 4}},
                    "conversation": {"nothing_to_learn": learns},
                },
            )
        ),
        "job.yaml",
    )
    dropped = describe_plan(job)["sources"][0]["dropped"]
    assert [text.rpartition(", ")[2] for text in dropped] == ["row 7: nothing-to-learn"] * (learns == "fail")


def write_conversations(directory: Path, num_rows: int, bad: dict[int, str]) -> None:
    """Write conversations and a chat tokenizer; ``bad`` rows have that role in them, or no message at all."""
    (directory / "chat").mkdir()
    (directory / "chat" / "tokenizer.json").write_text(byte_level_bpe(), encoding="utf-8")
    config = {"eos_token": END, "chat_template": MARKED}
    (directory / "chat" / "tokenizer_config.json").write_text(json.dumps(config))
    lines = []
    for row in range(num_rows):
        turns = [(bad.get(row, "user"), f"question {row}"), ("assistant", f"answer {row}")]
        messages = [{"role": role, "content": text} for role, text in turns]
        lines.append(json.dumps({"messages": [] if bad.get(row) == "" else messages}))
    (directory / "talks.jsonl").write_text("\n".join(lines) + "\n")
