"""Every example of docs/data.md holds: fragments of a spec are planned and made into rows, programs run."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from tests.api.builders import CHAT_TEMPLATE, conversations, make_tokenizer, texts
from tests.data.builders import data_job
from tpuworker.describe import describe_plan

PAGE = (Path(__file__).parents[2] / "docs/data.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)


@pytest.fixture(autouse=True)
def _a_directory_as_the_examples_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("corpus", "web/part", "talks"):
        (tmp_path / name).mkdir(parents=True)
    pq.write_table(pa.table({"text": texts(100)}), tmp_path / "corpus/a.parquet", row_group_size=20)
    lines = [json.dumps({"text": None if row == 7 else text}) + "\n" for row, text in enumerate(texts(100))]
    (tmp_path / "web/part/a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    talks = [*conversations(98)["messages"], [], [{"role": "user", "content": "nobody answers"}]]
    (tmp_path / "talks/a.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    make_tokenizer(chat_template=CHAT_TEMPLATE).save_pretrained(tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("fragment", [code for kind, code in BLOCKS if kind == "yaml"])
def test_a_fragment_of_a_spec_is_planned_and_made_into_rows(fragment: str) -> None:
    data = {"tokenizer": {"path": "tokenizer"}, "max_length": 48, **YAML(typ="safe").load(fragment)}
    told = describe_plan(data_job(data.pop("sources", "corpus/*.parquet"), batch=16, **data), show=1)
    assert told["plan"]["num_steps"] > 0
    assert any(row["trained"] for row in told["rows"])


def test_programs_run() -> None:
    programs = [code for kind, code in BLOCKS if kind == "python"]
    assert programs
    exec(compile("\n".join(programs), "docs/data.md", "exec"), {})


def test_every_block_is_tried() -> None:
    assert {kind for kind, _ in BLOCKS} == {"yaml", "python"}
    assert PAGE.count("```") == 2 * len(BLOCKS)
