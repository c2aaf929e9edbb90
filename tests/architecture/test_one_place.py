"""Each thing that will be added some day has one place, and files stay small enough to be read."""

from __future__ import annotations

import itertools
import re
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from tpuworker.spec.tpu import GENERATIONS

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "launcher").rglob("*.py"), *(ROOT / "worker").rglob("*.py")])
TEMPLATES = sorted((ROOT / "manifests").rglob("*.j2"))
TABLE = ROOT / "worker/tpuworker/spec/tpu.py"
#: Examples in prose of the spec and the embedded default may name a generation; logic may not.
_MAY_SHOW = {ROOT / "worker/tpuworker/demo.py"}
MOST_LINES = 400


def code_strings(path: Path) -> Iterator[str]:
    """Yield string literals of a Python file that are no docstrings, and its names."""
    tokens = list(tokenize.tokenize(BytesIO(path.read_bytes()).readline))
    for before, token in itertools.pairwise(tokens):
        statement = before.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
        if token.type == tokenize.STRING and not statement:
            yield token.string


def generation_words() -> re.Pattern[str]:
    words = {word for g in GENERATIONS for word in (g.name, g.accelerator_label, g.type_prefix, *g.aliases)}
    return re.compile(r"(?<![\w-])(" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")(?![\w-])")


def test_a_generation_is_named_in_the_table_only() -> None:
    pattern = generation_words()
    named = {
        f"{path.relative_to(ROOT)}: {text[:60]}"
        for path in SOURCES
        if path != TABLE and path not in _MAY_SHOW
        for text in code_strings(path)
        if pattern.search(text) and "examples=" not in text
    }
    allowed = {text for text in named if "spec/hardware.py" in text}
    assert named - allowed == set()


def test_a_template_names_no_generation() -> None:
    pattern = generation_words()
    assert [path.name for path in TEMPLATES if pattern.search(path.read_text())] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_no_room_is_an_attic() -> None:
    attics = {"utils", "helpers", "common", "misc", "util", "helper"}
    assert [path for path in SOURCES if path.stem in attics or path.parent.name in attics] == []
