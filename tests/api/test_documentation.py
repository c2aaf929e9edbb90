"""Every example of docs/api.md runs as it stands, the blocks of a library one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.builders import make_tokenizer, texts

PAGE = Path(__file__).parents[2] / "docs/api.md"
BLOCK = re.compile(r"^```python *(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(library: str) -> str:
    found = [code for name, code in BLOCK.findall(PAGE.read_text()) if name == library]
    assert found
    return "\n".join(found)


def run(library: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "corpus").mkdir()
    pq.write_table(pa.table({"text": texts(100)}), directory / "corpus/part.parquet")
    make_tokenizer().save_pretrained(directory / "tokenizer")
    monkeypatch.chdir(directory)
    names: dict[str, Any] = {}
    exec(compile(blocks(library), str(PAGE), "exec"), names)


def test_examples_without_a_library_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("", tmp_path, monkeypatch)


@pytest.mark.torch_xla
def test_examples_for_torch_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    run("torch", tmp_path, monkeypatch)


@pytest.mark.jax
def test_examples_for_jax_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    run("jax", tmp_path, monkeypatch)


def test_the_page_names_every_function_that_is_exported() -> None:
    import tpuworker.api

    functions = {name for name in tpuworker.api.__all__ if name.startswith("create_") or name.endswith("Dataset")}
    assert {name for name in functions if f"`{name}(" not in PAGE.read_text()} == {"JaxDataset"}
