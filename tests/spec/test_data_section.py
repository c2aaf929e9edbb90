"""A data section by itself, as programs give it, is judged as one inside a document is."""

from __future__ import annotations

import pytest

from tpuworker.errors import SpecError
from tpuworker.spec.document import load_data

SOUND = {"sources": [{"files": "a.txt"}], "tokenizer": {"path": "gpt2"}, "max_length": 8, "global_batch_size": 4}


def test_every_fault_is_told_at_once_with_the_path_it_has_in_a_document() -> None:
    assert load_data(SOUND).max_length == 8
    with pytest.raises(SpecError) as refusal:
        load_data({**SOUND, "max_length": 1, "shuffle": {"sed": 3}, "conversation_column": "x"})
    faults = {fault.path: fault for fault in refusal.value.faults}
    assert faults.keys() == {"spec.data.max_length", "spec.data.shuffle.sed"}
    assert faults["spec.data.shuffle.sed"].hint == "did you mean seed?"
    with pytest.raises(SpecError, match=r"spec\.data\.conversation_column: found 'x'"):
        load_data({**SOUND, "conversation_column": "x"})
