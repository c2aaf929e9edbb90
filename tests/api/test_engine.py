"""engine="auto": a faster engine serves where it is proved equal, and no id, row or refusal is another one for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.builders import in_memory, streaming
from tests.tokens.families import byte_level_bpe, unigram
from tpuworker.api import create_streaming_dataset
from tpuworker.errors import SpecError

LENGTH = 12


@pytest.fixture(autouse=True)
def _findings_of_this_test_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rows_of(stream: Any) -> list[list[int]]:
    return [row["input_ids"].tolist() for row in stream]


@pytest.mark.parametrize("make_source", [in_memory, streaming])
def test_a_proved_engine_makes_the_ids_of_the_reference(make_source: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastokens")
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_level_bpe())
    made = {
        engine: create_streaming_dataset(make_source(40), "train", path, LENGTH, 3, 30, engine=engine)
        for engine in ("reference", "auto")
    }
    assert rows_of(made["auto"]) == rows_of(made["reference"])
    engines = {name: stream.recipe.prepare(1).fingerprint["engine"].split()[0] for name, stream in made.items()}
    assert engines == {"reference": "reference", "auto": "fastokens"}


def test_a_tokenizer_that_no_engine_is_trusted_with_is_left_to_the_reference_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(unigram())
    stream = create_streaming_dataset(in_memory(5), "train", path, LENGTH, engine="auto")
    assert stream.recipe.prepare(1).fingerprint["engine"].startswith("reference")
    with pytest.raises(SpecError, match=r"engine: found fastokens: its model \(Unigram.*write engine: auto"):
        create_streaming_dataset(in_memory(5), "train", path, LENGTH, engine="fastokens")
    with pytest.raises(SpecError, match='engine: found "fastest"'):
        create_streaming_dataset(in_memory(5), "train", path, LENGTH, engine="fastest")  # type: ignore[arg-type]
