"""Which files an engine is trusted with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tokens.families import FAMILIES, byte_level_bpe, llama3_style, nfc_style, with_added_token
from tpuworker.tokens.shapes import refusal_of

TRUSTED = {
    "byte-level": ("fastokens", "gigatoken"),
    "llama-3": ("fastokens", "gigatoken"),
    "nfc": ("fastokens", "gigatoken"),
    "llama-2": ("fastokens", "gigatoken"),
    "metaspace": ("gigatoken",),
    "unigram": (),
    "wordpiece": (),
}


def changed(text: str, *path: str | int, value: Any) -> str:
    content = json.loads(text)
    node = content
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["fastokens", "gigatoken"])
def test_each_family_is_given_to_the_engines_it_was_measured_with(family: str, engine: str) -> None:
    assert (refusal_of(engine, FAMILIES[family]()) is None) == (engine in TRUSTED[family])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (changed(byte_level_bpe(), "pre_tokenizer", value=None), "pre_tokenizer"),
        (changed(byte_level_bpe(), "pre_tokenizer", "use_regex", value=False), "pre_tokenizer"),
        (changed(byte_level_bpe(), "model", "dropout", value=0.1), "model"),
        (changed(byte_level_bpe(), "model", "end_of_word_suffix", value="</w>"), "model"),
        (changed(llama3_style(), "pre_tokenizer", "pretokenizers", 0, "behavior", value="Removed"), "pre_tokenizer"),
        (changed(llama3_style(), "pre_tokenizer", "pretokenizers", 0, "invert", value=True), "pre_tokenizer"),
        (changed(llama3_style(), "pre_tokenizer", "pretokenizers", 0, "pattern", value={"String": " "}), "Split"),
        (with_added_token(byte_level_bpe(), "word", single_word=True), "added_tokens"),
        (with_added_token(nfc_style(), "word", normalized=True), "added_tokens|combination"),
        (changed(byte_level_bpe(), "normalizer", value={"type": "NFKC"}), "normalizer"),
        (changed(byte_level_bpe(), "pre_tokenizer", "a_field_of_tomorrow", value=1), "pre_tokenizer"),
    ],
    ids=[
        "no pre-tokenizer", "use_regex off", "dropout", "suffix", "behavior", "invert", "literal", "single_word",
        "normalized", "NFKC", "unknown field",
    ],
)  # fmt: skip
def test_fields_that_gigatoken_ignores_are_not_given_to_it(text: str, what: str) -> None:
    reason = refusal_of("gigatoken", text)
    assert reason is not None
    assert any(word in reason for word in what.split("|"))


@pytest.mark.parametrize(
    "text",
    [
        changed(byte_level_bpe(), "pre_tokenizer", value=None),
        changed(byte_level_bpe(), "pre_tokenizer", value={"type": "Punctuation", "behavior": "Isolated"}),
        changed(byte_level_bpe(), "normalizer", value={"type": "NFKC"}),
        changed(byte_level_bpe(), "normalizer", "type", value="x") if json.loads(byte_level_bpe())["normalizer"] else
        changed(byte_level_bpe(), "a", value=1).replace('"normalizer": null', '"normalizer": {"type": "Strip"}'),
    ],
    ids=["no pre-tokenizer", "Punctuation", "NFKC", "Strip"],
)  # fmt: skip
def test_fastokens_is_not_given_what_it_was_not_measured_with(text: str) -> None:
    assert refusal_of("fastokens", text) is not None


def test_a_refusal_names_the_node_and_not_the_vocabulary() -> None:
    reason = refusal_of("fastokens", FAMILIES["metaspace"]())
    assert reason is not None
    assert "Metaspace" in reason
    assert len(reason) < 300
