"""The usual pipeline: stream, shuffle, shard, map with padding, torch format, DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from bench.contenders.base import Arrays, use_rust_threads
from bench.contenders.datasets_stream import batches_in, restored, text_stream
from bench.corpus.tokenizers import PAD_TOKEN
from bench.task import Task


def tokenised(task: Task, stream: Any) -> Any:
    """Return the stream mapped through the transformers tokenizer, padded to the full length."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=task.tokenizer, pad_token=PAD_TOKEN)

    def tokenise(rows: dict[str, list[str]]) -> Any:
        out = tokenizer(
            rows["text"],
            padding="max_length",
            truncation=True,
            max_length=task.length,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        out["labels"] = [list(ids) for ids in out["input_ids"]]
        return out

    return stream.map(tokenise, batched=True, batch_size=256, remove_columns=["text"])


class _Stream:
    def __init__(self, task: Task, state: object) -> None:
        workers = task.int_option("workers", 0)
        use_rust_threads(workers == 0)
        self.num_batches = batches_in(task)
        self._stream = restored(tokenised(task, text_stream(task)), state)
        self._loader = DataLoader(
            self._stream.with_format("torch"), batch_size=task.num_rows, num_workers=workers, drop_last=True
        )
        self._epochs = task.epochs

    def __iter__(self) -> Iterator[Arrays]:
        for epoch in range(self._epochs):
            self._loader.dataset.set_epoch(epoch)
            for batch in self._loader:
                yield {name: tensor.numpy() for name, tensor in batch.items()}

    def state(self) -> object:
        return self._loader.dataset.state_dict()


def open_stream(task: Task, state: object) -> Any:
    """Open the usual pipeline."""
    return _Stream(task, state)
