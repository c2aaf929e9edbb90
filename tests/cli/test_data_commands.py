"""``plan`` and ``init --data``: the data's own columns and numbers, asked of the worker in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.launcher.builders import spec_text
from tpulaunch.cli import worker_process
from tpulaunch.cli.init import choose_column
from tpuworker.spec import load_job

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write_rows(path: Path, num_rows: int, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: [value] * num_rows for name, value in columns.items()}), path)


def test_plan_shows_rows_steps_and_ram(tpulaunch: Run, directory: Path) -> None:
    write_rows(directory / "corpus/a.parquet", 150, text="some words")
    write_rows(directory / "corpus/b.parquet", 60, text="other words")
    (directory / "job.yaml").write_text(spec_text())
    ended = tpulaunch("plan", "job.yaml")
    assert ended.code == 0
    lines = {line[:16].strip(): line[16:] for line in ended.out.splitlines()[3:]}
    assert lines["batch"] == "[64, 16]: 1,024 tokens a step, 16 rows a host"
    assert lines["steps"] == "3 an epoch, 3 in all"
    assert lines["remainder"] == "18 rows of an epoch left out"
    assert lines["lanes"].startswith("64, 16 a host; ")
    assert lines["shuffle buffer"] == "210 rows over all hosts (10,000 rows below 1,000,000), seed 0"
    assert "ct6e-standard-4t (720 GiB)" in lines["its RAM"]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("stream", ("5 in all, as train.steps says; documents are packed as they come, epoch after epoch", None, "-")),
        ("exact", ("guessed from bytes until documents are measured at start", "rows of an epoch left out", ".")),
    ],
)
@pytest.mark.parametrize("num_sources", [1, 2])
def test_plan_shows_packed_data_as_a_table(
    tpulaunch: Run, directory: Path, form: str, shown: tuple[str, str | None, str], num_sources: int
) -> None:
    steps, remainder, epochs = shown
    sources = [{"files": f"{name}/*.parquet"} for name in ("books", "web")[:num_sources]]
    for name in ("books", "web"):
        texts = [f"{number} words of a document of its own, and {number} more of them" for number in range(2000)]
        (directory / name).mkdir()
        pq.write_table(pa.table({"text": texts}), directory / name / "a.parquet")
    data = {"sources": sources, "layout": "pack", "packing": {"form": form}}
    ended = tpulaunch("plan", "-", stdin=spec_text(data=data, train={"steps": 5}))
    assert ended.code == 0, ended.err
    table, _, rest = ended.out.partition("\n\n")
    lines = {line[:16].strip(): line[16:] for line in rest.splitlines()}
    assert lines["steps"].endswith(steps)
    assert lines.get("remainder", "").endswith(remainder or "")
    assert ("remainder" in lines) == (remainder is not None)
    last_column = [line.split()[-1] for line in table.splitlines()[1:]]
    assert len(last_column) == num_sources
    assert all(epochs in cell for cell in last_column)


def test_plan_speaks_json(tpulaunch: Run, directory: Path) -> None:
    write_rows(directory / "corpus/a.parquet", 128, text="some words")
    told = json.loads(tpulaunch("plan", "-", "-o", "json", stdin=spec_text()).out)
    assert told["plan"]["num_steps"] == 2
    assert told["sources"][0]["column"] == "text"


@pytest.mark.parametrize(
    ("columns", "num_rows", "words"),
    [
        ({"body": "x", "id": 1}, 100, "found columns body, id; wanted a column 'text' or 'data'"),
        ({"text": 1}, 100, "wanted a column of text"),
        ({"text": "x"}, 63, "found 63 rows; wanted one global batch, 64"),
    ],
)
def test_data_that_does_not_fit_the_spec_is_refused_with_2(
    tpulaunch: Run, directory: Path, columns: dict[str, Any], num_rows: int, words: str
) -> None:
    write_rows(directory / "corpus/a.parquet", num_rows, **columns)
    ended = tpulaunch("plan", "-", stdin=spec_text())
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_a_pattern_that_matches_nothing_and_a_file_that_is_not_what_its_name_says(
    tpulaunch: Run, directory: Path
) -> None:
    (directory / "corpus").mkdir()
    ended = tpulaunch("plan", "-", stdin=spec_text())
    assert ended.code == 2
    assert "corpus/*.parquet: found no file" in ended.err
    (directory / "corpus/a.parquet").write_text("no parquet at all")
    ended = tpulaunch("plan", "-", stdin=spec_text())
    assert ended.code == 2
    assert "corpus/a.parquet" in ended.err


def test_without_the_workers_packages_the_remedy_is_named(tpulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_MARK_OF_A_WORKER", "no_such_library")
    ended = tpulaunch("plan", "-", stdin=spec_text())
    assert ended.code == 1
    assert "pip install 'tpulaunch[jax]'" in ended.err


def test_init_asks_the_data_for_its_columns(tpulaunch: Run, directory: Path) -> None:
    write_rows(directory / "a.parquet", 3, id=1, content="words")
    ended = tpulaunch("init", "--data", "*.parquet")
    assert ended.code == 0
    assert "columns id (int64), content (string)" in ended.err
    assert load_job((directory / "job.yaml").read_text()).spec.data.text_column == "content"


def test_init_without_the_workers_packages_still_writes(
    tpulaunch: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_MARK_OF_A_WORKER", "no_such_library")
    ended = tpulaunch("init", "--data", "*.parquet")
    assert ended.code == 0
    assert "not looked at" in ended.err
    assert load_job((directory / "job.yaml").read_text()).spec.data.text_column == "auto"


TURNS = "list<element: struct<role: string, content: string>>"


@pytest.mark.parametrize(
    ("columns", "choice"),
    [
        ({"text": "string", "id": "int64"}, ("pretrain", None, None)),
        ({"data": "string"}, ("pretrain", None, None)),
        ({"messages": TURNS, "text": "string"}, ("conversation", None, None)),
        ({"body": "string"}, ("pretrain", "text_column", "body")),
        ({"chat": TURNS, "id": "int64"}, ("conversation", "conversation_column", "chat")),
    ],
)
def test_the_column_is_chosen_by_name_and_type(
    columns: dict[str, str], choice: tuple[str, str | None, str | None]
) -> None:
    assert choose_column(columns) == choice


def test_data_without_text_is_refused_with_its_columns(tpulaunch: Run, directory: Path) -> None:
    write_rows(directory / "a.parquet", 3, id=1, score=0.5)
    ended = tpulaunch("init", "--data", "a.parquet")
    assert (ended.code, ended.out) == (2, "")
    assert "found columns id, score; wanted one with text or conversations" in ended.err
    assert not (directory / "job.yaml").exists()


TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]


def write_chats(directory: Path, *talks: Any) -> str:
    """Write conversations with a tokenizer that can render them, and return the text of a job over them."""
    from tests.tasks.test_conversations import MARKED
    from tests.tokens.families import END, byte_level_bpe

    (directory / "chat").mkdir()
    (directory / "chat/tokenizer.json").write_text(byte_level_bpe(), encoding="utf-8")
    (directory / "chat/tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": MARKED}))
    (directory / "talks.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in talks))
    sources = {"sources": [{"files": "talks.jsonl"}], "tokenizer": {"path": "chat"}}
    return spec_text(data={"task": "conversation", "max_length": 24, "remainder": "mask", **sources})


def test_plan_shows_rows_as_text_with_the_trained_tokens_marked(tpulaunch: Run, directory: Path) -> None:
    text = write_chats(directory, TALK, [], *[TALK] * 62)
    ended = tpulaunch("plan", "-", "--show", "2", stdin=text)
    assert ended.code == 0, ended.err
    _, first, second = ended.out.split("\n--- a row of talks.jsonl: ")
    assert "tokens are trained on" in first.splitlines()[0]
    assert "<|user|>hello<|endoftext|>" in first
    assert "[[world<|endoftext|>]]" in first
    assert first.rstrip().endswith("pads>")
    assert second.startswith("bad record: empty-conversation\n")
    assert "[[" not in second


def test_plan_shows_packed_rows_of_every_source(tpulaunch: Run, directory: Path) -> None:
    text = write_chats(directory)
    write_rows(directory / "one/a.parquet", 128, text="some words")
    write_rows(directory / "two/a.parquet", 128, text="other words")
    sources = [{"files": "one/*.parquet"}, {"files": "two/*.parquet"}]
    tokenizer = json.loads(text)["spec"]["data"]["tokenizer"]
    packed = spec_text(data={"sources": sources, "tokenizer": tokenizer, "layout": "pack"}, train={"steps": 2})
    told = json.loads(tpulaunch("plan", "-", "--show", "1", "-o", "json", stdin=packed).out)
    assert [row["source"] for row in told["rows"]] == ["one/*.parquet", "two/*.parquet"]
    assert all("--- next document ---" in row["text"] for row in told["rows"])
    assert "words<|endoftext|>]]" in told["rows"][0]["text"]
