"""Rows of a batch as text, with the tokens that carry loss marked: what a person looks at before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from tpuworker.tokens.engine import Int32s
from tpuworker.tokens.tokenizer import Tokenizer

_NO_LABEL = -100


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens of one kind.

    Attributes:
        text: What they say, special tokens included.
        num_tokens: How many they are.
        kind: ``trained`` (carry loss), ``read`` (do not), or ``pad``.
        segment: Number of their document in the row, from 1; 0 for pads.
    """

    text: str
    num_tokens: int
    kind: str
    segment: int


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One row.

    Attributes:
        row: Place in the batch.
        runs: Its tokens, in order.
    """

    row: int
    runs: tuple[Run, ...]

    @property
    def num_trained(self) -> int:
        """Tokens that carry loss."""
        return sum(run.num_tokens for run in self.runs if run.kind == "trained")

    def describe(self) -> str:
        """Return the row as plain text: ``[[...]]`` is trained on, ``<12 pads>`` stands for pads."""
        parts = []
        segment = 0
        for run in self.runs:
            if run.kind == "pad":
                parts.append(f"<{run.num_tokens} pads>")
                continue
            if run.segment != segment and segment:
                parts.append("\n--- next document ---\n")
            segment = run.segment
            parts.append(f"[[{run.text}]]" if run.kind == "trained" else run.text)
        return "".join(parts)


def probe_rows(arrays: Mapping[str, Int32s], tokenizer: Tokenizer, count: int) -> list[ProbeRow]:
    """Return the first rows of a batch as text.

    Args:
        arrays: A batch of either layout: ``input_ids``, ``labels``, and ``attention_mask`` or ``segment_ids``.
        tokenizer: What made the ids.
        count: Most rows.
    """
    from tokenizers import Tokenizer as HFTokenizer

    decode = HFTokenizer.from_str(tokenizer.json_text).decode
    segments = arrays.get("segment_ids")
    present = arrays["attention_mask"] if segments is None else segments
    rows = []
    for row in range(min(count, len(arrays["input_ids"]))):
        ids = arrays["input_ids"][row].tolist()
        kinds = [
            ("pad" if not segment else "read" if label == _NO_LABEL else "trained", segment)
            for label, segment in zip(arrays["labels"][row].tolist(), present[row].tolist(), strict=True)
        ]
        runs = []
        for (kind, segment), group in groupby(range(len(ids)), key=kinds.__getitem__):
            places = list(group)
            text = "" if kind == "pad" else decode([ids[place] for place in places], skip_special_tokens=False)
            runs.append(Run(text, len(places), kind, segment))
        rows.append(ProbeRow(row, tuple(runs)))
    return rows
