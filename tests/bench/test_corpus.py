"""Corpora: the same bytes each time, rows that know their number, tokenizers of three families."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench.corpus.machine_text import machine_text
from bench.corpus.store import open_corpus
from bench.corpus.synthetic import NUMBERED_ROWS, ideographs, latin_like, number_of, numbered_rows
from bench.corpus.tokenizers import Family, train


def test_a_seed_gives_the_same_documents_and_another_seed_others() -> None:
    first = list(latin_like(1, 100_000))

    assert first == list(latin_like(1, 100_000))
    assert first != list(latin_like(2, 100_000))
    assert 100_000 <= sum(len(text.encode()) for text in first) <= 200_000


def test_numbered_rows_are_4001_in_seven_files_and_say_their_number() -> None:
    files = numbered_rows(3)

    assert [len(file) for file in files] == list(NUMBERED_ROWS)
    assert [number_of(text) for file in files for text in file] == list(range(4_001))


#: Lines that differ, so that enough is left of them once they are compressed.
_CHANGES = "".join(f"Change {number}: {number**5} was made {number * 7919}.\n" for number in range(60))


def a_machine(directory: Path) -> list[Path]:
    sentence = "A line of documentation that is long enough to be taken.\n"
    (directory / "docs").mkdir(parents=True)
    (directory / "docs" / "guide.md").write_text(sentence * 20)
    (directory / "docs" / "copy.md").write_text(sentence * 20)
    (directory / "docs" / "changelog.gz").write_bytes(gzip.compress(_CHANGES.encode()))
    (directory / "docs" / "broken.gz").write_bytes(b"\x1f\x8b" + b"no gzip at all" * 50)
    (directory / "docs" / "binary.txt").write_bytes(b"\0\1\2" * 400)
    (directory / "docs" / "data.txt").write_text("0123456789" * 100)
    (directory / "code.py").write_text("value = 'a line of source code'\n" * 30)
    return [directory]


def test_real_text_takes_prose_before_sources_each_content_once_and_no_data(tmp_path: Path) -> None:
    text = "".join(machine_text(1, 1_000_000, a_machine(tmp_path)))

    assert text.count("A line of documentation") == 20
    assert _CHANGES in text
    assert text.endswith("value = 'a line of source code'\n" * 30)
    assert "0123456789" not in text
    assert "\0" not in text


def test_real_text_stops_at_its_size_and_is_the_same_again_wherever_it_lies(tmp_path: Path) -> None:
    here, there = a_machine(tmp_path / "here"), a_machine(tmp_path / "there")

    assert list(machine_text(1, 500, here)) == list(machine_text(1, 500, there))
    assert len(list(machine_text(1, 1, here))) == 1


@pytest.mark.parametrize("family", ["byte-level", "llama-2", "cjk"])
def test_a_tokenizer_of_each_family_gives_the_text_back(family: Family, tmp_path: Path) -> None:
    sample = ideographs if family == "cjk" else latin_like
    train(family, sample(1, 200_000), tmp_path / "tokenizer.json", vocabulary_size=600)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    ids = tokenizer.encode("plain words, 七 and \U0001f600", add_special_tokens=False).ids

    assert tokenizer.decode(ids) == "plain words, 七 and \U0001f600"


def test_a_corpus_is_made_once_and_a_half_made_one_again(tmp_path: Path) -> None:
    made = open_corpus(tmp_path, "latin", 1_000_000)
    files = sorted(Path(made.directory, "parquet").iterdir())
    before = [path.stat().st_mtime_ns for path in files]

    assert open_corpus(tmp_path, "latin", 1_000_000) == made
    assert [path.stat().st_mtime_ns for path in files] == before

    Path(made.directory, ".done.json").unlink()

    assert open_corpus(tmp_path, "latin", 1_000_000) == made
