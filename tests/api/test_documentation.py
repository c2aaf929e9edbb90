"""Every example of docs/api.md and of the public docstrings runs as it stands, and each public name has one."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tpuworker.api
from tests.api.builders import CHAT_TEMPLATE, make_tokenizer, texts

PAGE = Path(__file__).parents[2] / "docs/api.md"
BLOCK = re.compile(r"^```python *(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(library: str) -> str:
    found = [code for name, code in BLOCK.findall(PAGE.read_text()) if name == library]
    assert found
    return "\n".join(found)


@pytest.fixture(autouse=True)
def _a_directory_as_the_examples_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"text": texts(100)}), tmp_path / "corpus/part.parquet")
    make_tokenizer().save_pretrained(tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)


def run(library: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(blocks(library), str(PAGE), "exec"), names)


def test_examples_without_a_library_run() -> None:
    run("")


@pytest.mark.torch_xla
def test_examples_for_torch_run() -> None:
    pytest.importorskip("torch")
    run("torch")


@pytest.mark.jax
def test_examples_for_jax_run() -> None:
    pytest.importorskip("jax")
    run("jax")


def test_the_page_names_every_function_that_is_exported() -> None:
    functions = {name for name in tpuworker.api.__all__ if name.startswith("create_") or name.endswith("Dataset")}
    assert {name for name in functions if f"`{name}(" not in PAGE.read_text()} == {"JaxDataset"}


#: Public names that need a library; the others load none.
LIBRARIES = {
    **dict.fromkeys(("BatchLoader", "ConversationDataset", "PretrainDataset", "StreamingDataset"), "torch"),
    **dict.fromkeys(("create_dataloader", "create_deterministic_dataloader"), "torch"),
    **dict.fromkeys(("JaxDataset", "create_jax_dataset"), "jax"),
}
MARKS = {"torch": pytest.mark.torch_xla, "jax": pytest.mark.jax}
NAMES = [
    pytest.param(name, marks=MARKS[LIBRARIES[name]] if name in LIBRARIES else ()) for name in tpuworker.api.__all__
]


def documented(name: str) -> Iterator[tuple[str, Any]]:
    """Yield a public name and its methods that are there for callers, inherited ones of this package included."""
    thing = getattr(tpuworker.api, name)
    yield name, thing
    if inspect.isclass(thing):
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if not method.startswith("_") and function.__module__.startswith("tpuworker.api"):
                yield f"{name}.{method}", function


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_docstrings_run(name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    names: dict[str, Any] = {"json": json, "tokenizer": make_tokenizer(chat_template=CHAT_TEMPLATE)}
    for each in tpuworker.api.__all__:
        if LIBRARIES.get(each) in (None, LIBRARIES.get(name)):
            names[each] = getattr(tpuworker.api, each)
    without = []
    for place, thing in documented(name):
        found = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", dict(names), place, None, 0)
        told: list[str] = []
        doctest.DocTestRunner().run(found, out=told.append)
        assert not told, "".join(told)
        if not found.examples:
            without.append(place)
    assert without in ([], [f"{name}.close"])


@pytest.mark.parametrize("name", NAMES)
def test_public_functions_tell_their_arguments_results_and_errors(name: str) -> None:
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    thing = getattr(tpuworker.api, name)
    words = inspect.getdoc(thing) or ""
    made = thing.__init__ if inspect.isclass(thing) else thing
    arguments = [argument for argument in inspect.signature(made).parameters if argument != "self"]
    told = words.partition("Args:\n")[2] or words.partition("Attributes:\n")[2]
    assert [argument for argument in arguments if f"    {argument}: " not in told] == []
    if name != "World":
        assert "Raises:" in words
