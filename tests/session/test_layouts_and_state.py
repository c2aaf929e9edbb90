"""Packed rows, bad records and other people's checkpoint libraries, in a session on one host."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("jax")

from tests.session.builders import LENGTH, write_corpus
from tests.session.test_training_loop import Bench, ids_of

pytestmark = pytest.mark.jax


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    write_corpus(tmp_path)
    bench = Bench(tmp_path, tmp_path)
    yield bench
    bench.close()


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
