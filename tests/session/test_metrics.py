"""A running session is scraped over HTTP, as a PodMonitoring does it, and read with Prometheus's own parser."""

from __future__ import annotations

import socket
from urllib.error import URLError
from urllib.request import urlopen

import pytest

pytest.importorskip("jax")
pytest.importorskip("prometheus_client")

from prometheus_client import parser

from tests.session.builders import BATCH, LENGTH, STEPS_PER_EPOCH
from tests.session.test_training_loop import Bench

pytestmark = pytest.mark.jax
LABELS = {"job": "tiny", "slice": "0", "host": "0"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scraped(port: int) -> dict[tuple[str, str], float]:
    """Return every sample by its name and the value of its own label, after all others were checked."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    found = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in LABELS}
            assert {name: sample.labels[name] for name in LABELS} == LABELS
            found[sample.name, "".join(own.values())] = sample.value
    return found


def test_a_scraper_reads_steps_stages_tokens_bad_records_and_the_cache(bench: Bench) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pq.read_table(bench.corpus / "part-0.parquet")["text"].to_pylist()
    texts[4] = None
    pq.write_table(pa.table({"text": texts}), bench.corpus / "part-0.parquet", row_group_size=20)
    port = free_port()
    data = {"on_bad_record": "mask", "cache": str(bench.directory / "tokens"), "epochs": 2}
    run = bench.run(metrics_port=port, data=data)
    session = run.opening.open()
    bench.sessions.append(session)
    for _ in session.batches():
        session.report(session.step, loss=0.5)
        if session.step == STEPS_PER_EPOCH + 5:
            found = scraped(port)  # while it runs; the line of the tenth step of this epoch is the last one told
    last = scraped(port)
    assert found["tpulaunch_step", ""] < last["tpulaunch_step", ""] == 2 * STEPS_PER_EPOCH
    assert last["tpulaunch_loss", ""] == 0.5
    assert last["tpulaunch_stage_rows", "pack"] == 2 * STEPS_PER_EPOCH * BATCH
    assert last["tpulaunch_bad_records", "null"] >= 1
    tokens = {label: value for (name, label), value in last.items() if name == "tpulaunch_tokens"}
    assert tokens["slots"] == 2 * STEPS_PER_EPOCH * BATCH * LENGTH
    assert tokens["tokenised"] == tokens["delivered"] + tokens["cut"] + tokens["dropped"] > 0
    cache = {label: value for (name, label), value in last.items() if name == "tpulaunch_cache"}
    assert cache["hits"] > 0
    assert cache["damaged"] == cache["refused"] == 0
    (first, *_, line) = bench.records("progress")
    assert line["tokens"] == tokens
    assert line["cache"] == cache
    assert 3 <= line["lengths"]["shortest"] <= line["lengths"]["median"] <= line["lengths"]["longest"] <= LENGTH
    assert first["shuffle"]["label_entropy"] > 0.9
    assert run.succeed() == 0
    page = (bench.directory / "state" / "report.html").read_text()
    for heading in ("Tokens of this host", "Lengths", "Shuffle quality", "Token cache", "Bad records of this host"):
        assert heading in page
    with pytest.raises(URLError):
        scraped(port)


def test_a_port_that_is_taken_costs_the_metrics_and_not_the_job(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = bench.run(metrics_port=port)
        session = run.opening.open()
        bench.sessions.append(session)
        assert sum(1 for _ in session.batches()) == STEPS_PER_EPOCH
    told = [record["message"] for record in bench.records() if record["severity"] == "WARNING"]
    assert any(f"no metrics: port {port}" in message for message in told)
