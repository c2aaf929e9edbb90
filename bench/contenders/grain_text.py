"""What both Grain contenders do with texts: tokenise lists of them, then pad into batches or pack with first fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import absl.flags
import grain
import numpy as np
from grain.experimental import FirstFitPackIterDataset, FlatMapIterDataset, FlatMapTransform

from bench.contenders.base import IGNORED, Arrays, load_reference, packed_batches, pad_id_of, padded
from bench.task import Task

_BATCHES_PER_CALL = 8
_PACKING_BINS = 128


class _Tokenise(FlatMapTransform):  # type: ignore[misc]
    """A list of texts to padded batches, or to cut documents for the packer."""

    max_fan_out = 100_000

    def __init__(self, task: Task) -> None:
        self._task = task
        self._tokenizer = load_reference(task)
        self._pad_id = pad_id_of(self._tokenizer)

    def flat_map(self, element: list[str]) -> Sequence[Any]:
        task = self._task
        encodings = self._tokenizer.encode_batch_fast(element, add_special_tokens=False)
        if task.layout == "pad":
            starts = range(0, len(encodings) - task.num_rows + 1, task.num_rows)
            return [padded(encodings[at : at + task.num_rows], task.length, self._pad_id) for at in starts]
        documents = (np.array(encoding.ids, np.int32) for encoding in encodings)
        return [
            {"input_ids": ids[at : at + task.length]} for ids in documents for at in range(0, len(ids), task.length)
        ]


def _packed(batch: dict[str, Any]) -> Arrays:
    segments = batch["input_ids_segment_ids"].astype(np.int32)
    positions = batch["input_ids_positions"].astype(np.int32)
    ids = batch["input_ids"].astype(np.int32)
    labels = np.where((segments > 0) & (positions > 0), ids, IGNORED)
    return {"input_ids": ids, "segment_ids": segments, "position_ids": positions, "labels": labels}


class GrainStream:
    """A Grain iterator with its state."""

    def __init__(self, task: Task, source: Any, num_batches: int, text_of: Callable[[Any], str], state: object) -> None:
        def texts_of(rows: Sequence[Any]) -> list[str]:
            return [text_of(row) for row in rows]

        self.num_batches = num_batches if task.layout == "pad" else packed_batches(task)
        stream = source.batch(_BATCHES_PER_CALL * task.num_rows, batch_fn=texts_of)
        if hasattr(stream, "to_iter_dataset"):
            stream = stream.to_iter_dataset(grain.ReadOptions(num_threads=task.num_threads, prefetch_buffer_size=4))
        stream = FlatMapIterDataset(stream, _Tokenise(task))
        if task.layout == "pack":
            stream = FirstFitPackIterDataset(
                stream, length_struct={"input_ids": task.length}, num_packing_bins=_PACKING_BINS, shuffle_bins=False
            )
            stream = stream.batch(task.num_rows, drop_remainder=True).map(_packed)
        if workers := task.int_option("workers", 0):
            absl.flags.FLAGS.mark_as_parsed()  # Grain's workers read flags, which an absl program would have parsed
            stream = stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        self._iterator = iter(stream)
        if state is not None:
            self._iterator.set_state(cast("dict[str, Any]", state))

    def __iter__(self) -> Iterator[Arrays]:
        yield from self._iterator

    def state(self) -> object:
        """Return Grain's own state."""
        return self._iterator.get_state()
