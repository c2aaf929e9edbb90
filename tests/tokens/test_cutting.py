"""Texts are cut before tokenising only where no kept token can tell."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.builders import make_data, make_reference, make_tokenizer
from tests.tokens.families import FAMILIES, byte_level_bpe, corpus, llama2_style, with_added_token
from tpuworker.pipeline import make_pipeline
from tpuworker.tokens.cutting import CuttingEncoder, may_cut
from tpuworker.tokens.engine import Encoded, Texts

CUTTABLE = [family for family in FAMILIES if family != "unigram"]


class CountingEncoder:
    """The reference, and how much text it got."""

    name = "reference"
    version = "0"

    def __init__(self, json_text: str | None = None) -> None:
        self.reference = make_reference(json_text)
        self.num_characters = 0

    def encode(self, texts: Texts) -> Encoded:
        self.num_characters += sum(map(len, texts.to_pylist()))
        return self.reference.encode(texts)


def rows_of(encoded: Encoded) -> list[list[int]]:
    return [
        encoded.ids[begin:end].tolist() for begin, end in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_families_of_which_it_is_known_are_cut(family: str) -> None:
    assert may_cut(FAMILIES[family]()) == (family in CUTTABLE)


@pytest.mark.parametrize("family", CUTTABLE)
def test_the_tokens_wanted_are_those_of_the_whole_text(family: str) -> None:
    json_text = FAMILIES[family]()
    texts = pa.array([*corpus()[:60], "", "short", "word " * 5000, "x" * 9000, "ünï " * 3000, " " * 9000 + "a b" * 900])
    counting = CountingEncoder(json_text)
    wanted = 40
    cut = rows_of(CuttingEncoder(counting, wanted).encode(texts))
    whole = rows_of(make_reference(json_text).encode(texts))
    for short, full in zip(cut, whole, strict=True):
        assert short == full[: len(short)]
        assert len(short) == len(full) or len(short) >= wanted
    assert counting.num_characters < sum(map(len, texts.to_pylist())) / 2


@given(
    st.lists(
        st.sampled_from(["a", "b c", " ", "  ", "\n", "é", "東", "'s", "don't ", "1", "<|user|>", "word "]), max_size=30
    ),
    st.integers(0, 60),
    st.integers(1, 40),
)
def test_whatever_stands_around_the_cut_no_kept_token_changes(pieces: list[str], shift: int, wanted: int) -> None:
    text = "x" * shift + "".join(pieces) * 60
    texts = pa.array([text, text[shift:]])
    cut = rows_of(CuttingEncoder(CountingEncoder(), wanted).encode(texts))
    for short, full in zip(cut, rows_of(make_reference().encode(texts)), strict=True):
        assert short == full[: len(short)]
        assert len(short) == len(full) or len(short) >= wanted


def changed(json_text: str, **nodes: object) -> str:
    return json.dumps({**json.loads(json_text), **nodes})


def with_vocabulary(json_text: str, **tokens: int) -> str:
    content = json.loads(json_text)
    content["model"]["vocab"] |= tokens
    return json.dumps(content)


@pytest.mark.parametrize(
    "json_text",
    [
        with_added_token(byte_level_bpe(), "two words"),
        changed(byte_level_bpe(), normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        changed(byte_level_bpe(), pre_tokenizer=None),
        with_vocabulary(llama2_style(), **{"a▁b": 2000}),
    ],
    ids=["added token with a space", "unknown normalizer", "no split", "a token over a space"],
)
def test_files_in_which_something_reaches_over_the_cut_are_never_cut(json_text: str) -> None:
    assert not may_cut(json_text)


@pytest.mark.parametrize("task", ["text", "pretrain"])
@pytest.mark.parametrize("family", CUTTABLE)
def test_padded_batches_are_the_same_as_without_cutting(task: str, family: str) -> None:
    json_text = FAMILIES[family]()
    tokenizer = make_tokenizer(json_text, task=task)
    texts = pa.array([corpus()[1], "short", corpus()[2][:3000], ""])
    fields = {"task": task, "max_length": 32}
    cutting = make_pipeline(make_data(**fields), tokenizer, make_reference(json_text), 4)
    whole = make_pipeline(make_data(cache="somewhere", **fields), tokenizer, make_reference(json_text), 4)
    assert len(cutting.encode(texts).ids) < len(whole.encode(texts).ids)
    for name, array in cutting.batch(texts).items():
        assert array.tolist() == whole.batch(texts)[name].tolist()
