"""The reference engine gives what the library gives, whatever the threads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from tests.tokens.builders import make_reference
from tests.tokens.families import FAMILIES, corpus
from tpuworker.tokens.strings import split_evenly


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_ids_are_the_librarys(family: str, num_threads: int) -> None:
    texts = [*(text[:200] for text in corpus() * 8), "", " ", "\n\n"]
    json_text = FAMILIES[family]()
    encoded = make_reference(json_text, num_threads).encode(pa.array(texts))
    hf = HFTokenizer.from_str(json_text)
    wanted = [hf.encode(text, add_special_tokens=False).ids for text in texts]
    assert [row.tolist() for row in np.split(encoded.ids, encoded.offsets[1:-1])] == wanted
    assert encoded.ids.dtype == np.int32
    assert encoded.offsets.dtype == np.int64


def test_no_texts_give_no_ids() -> None:
    encoded = make_reference().encode(pa.array([], pa.string()))
    assert encoded.num_texts == 0
    assert encoded.offsets.tolist() == [0]


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(1, 8), st.integers(1, 10))
def test_calls_keep_all_texts_in_order_and_none_is_too_large(texts: list[str], min_parts: int, max_texts: int) -> None:
    parts = split_evenly(texts, min_parts=min_parts, max_texts=max_texts)
    assert [text for part in parts for text in part] == texts
    assert all(1 <= len(part) <= max_texts or min_parts == len(parts) == 1 for part in parts)


def test_one_long_text_among_short_ones_gets_a_call_of_its_own() -> None:
    parts = split_evenly(["a" * 10] * 5 + ["b" * 1000] + ["c" * 10] * 5, min_parts=2, max_texts=256)
    assert len(parts) == 2
