"""Tokenizers and datasets as training scripts hold them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, IterableDataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

#: Chat template with markers around what the assistant writes.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}{% endfor %}"
)


@cache
def make_tokenizer(*, pad: str = "<|pad|>", chat_template: str | None = None) -> Any:
    """A byte-level BPE, trained here on a few words; ``pad="<|end|>"`` makes pad and end token one."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([f"row number {number} tells a story" for number in range(200)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|end|>", pad_token=pad)
    tokenizer.chat_template = chat_template
    return tokenizer


def texts(num_rows: int, first: int = 0) -> list[str]:
    """Rows that differ, some of them long."""
    return [f"row {number} " + "tells a story " * (number % 5) for number in range(first, first + num_rows)]


def in_memory(num_rows: int) -> Dataset:
    return Dataset.from_dict({"text": texts(num_rows), "other": list(range(num_rows))})


def streaming(num_rows: int, num_shards: int = 3) -> IterableDataset:
    return in_memory(num_rows).to_iterable_dataset(num_shards=num_shards)


def generated(num_rows: int) -> IterableDataset:
    """A stream that tells neither its columns nor its length."""
    return IterableDataset.from_generator(_generate, gen_kwargs={"num_rows": num_rows})


def _generate(num_rows: int) -> Any:
    for text in texts(num_rows):
        yield {"text": text}


def hub_like(directory: Path, rows_per_file: Sequence[int], split: str = "train") -> str:
    """A directory as a dataset repository has it: data/SPLIT-00000-of-00003.parquet and so on."""
    (directory / "data").mkdir(parents=True, exist_ok=True)
    first = 0
    for number, rows in enumerate(rows_per_file):
        path = directory / "data" / f"{split}-{number:05d}-of-{len(rows_per_file):05d}.parquet"
        table = pa.table({"id": pa.array(range(first, first + rows)), "text": texts(rows, first)})
        pq.write_table(table, path, row_group_size=16)
        first += rows
    return str(directory)


def tokenised(num_rows: int, max_length: int = 12) -> Dataset:
    """Rows that were tokenised by the usual ``map``."""
    tokenizer = make_tokenizer()

    def tokenise(batch: dict[str, list[str]]) -> dict[str, Any]:
        return dict(tokenizer(batch["text"], padding="max_length", truncation=True, max_length=max_length))

    return Dataset.from_dict(tokenise({"text": texts(num_rows)}))


def conversations(num_rows: int, column: str = "messages") -> Dataset:
    turns = [
        [
            {"role": "user", "content": f"what is row {number}?"},
            {"role": "assistant", "content": f"row {number} tells a story"},
        ]
        for number in range(num_rows)
    ]
    return Dataset.from_dict({column: turns})


def row_numbers(rows: Any) -> list[int]:
    """The numbers that rows of ids (tensors or arrays) spell, in their order."""
    decoded = make_tokenizer().batch_decode([[int(token) for token in row] for row in rows], skip_special_tokens=True)
    return [int(text.split()[1]) for text in decoded]
