"""From a column of records to batches of one fixed shape: task and layout in a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuworker.layout import pack, pad
from tpuworker.layout.pieces import Pieces, pack_window
from tpuworker.layout.rows import RowBuffers, Rows
from tpuworker.spec.data import DataSpec
from tpuworker.storage import Storage
from tpuworker.tasks.column import usable_texts
from tpuworker.tasks.conversation import render_column
from tpuworker.tasks.task import Task, task_for
from tpuworker.tasks.template import ChatTemplate
from tpuworker.tokens.cache import TokenCache
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.engine import Engine, Int32s, Int64s
from tpuworker.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Pipeline:
    """What the loader calls: ``encode`` for many records at once, ``padded`` for their batches; ``batch`` does both.

    Engines are a quarter faster on a thousand documents a call than on a few dozen, so a loader reads ahead and calls
    ``encode`` for several batches. Packed documents go through ``plan`` and ``packed`` instead of ``padded``.

    Attributes:
        data: The job's data section.
        tokenizer: What makes the ids.
        task: Records to documents.
        engine: Name and version of the engine, as agreed at start.
        buffers: Memory of the batches, int32 [rows, max_length] each.
        records_per_call: Records of one call of ``encode``: a thousand for a fast engine, fewer for the reference:
            a process that is to end waits for a call.
        calls_at_once: Calls at the same time: one of a fast engine, which has threads of its own; two of the reference,
            which hands out ids as lists: one thread makes them while the other works.
    """

    data: DataSpec
    tokenizer: Tokenizer
    task: Task
    engine: str
    buffers: RowBuffers
    records_per_call: int = 1024
    calls_at_once: int = 1

    @property
    def fingerprint(self) -> dict[str, str]:
        """What decides a batch of given records, by name; a resumed run must have the same."""
        data = self.data
        layout = [data.layout, str(data.max_length), data.truncation_side, data.pad_labels]
        if data.layout == "pack":
            layout += [data.packing_form, data.packing.overflow]
        found = {
            "tokenizer": self.tokenizer.fingerprint,
            "engine": self.engine,
            "task": self.task.fingerprint,
            "layout": "/".join(layout),
        }
        if data.task == "conversation":
            found["chat_template"] = self.tokenizer.chat_fingerprint
        return found

    def cache(self, storage: Storage | None = None) -> TokenCache | None:
        """Return the cache of ``spec.data.cache``, or None if there is none.

        Its entries are documents of whole units: ``cache.documents(unit, make)`` finds or makes them, and
        :func:`tpuworker.tokens.documents.gather_documents` picks a batch's rows out of several. They depend on all of
        ``fingerprint`` but the layout; the engine is part of it, so that a difference found late spoils nothing else.
        """
        if self.data.cache is None:
            return None
        decides = {name: value for name, value in self.fingerprint.items() if name != "layout"}
        return TokenCache(self.data.cache, decides, int(self.data.cache_limit_gib * 2**30), storage)

    def encode(self, column: pa.Array | pa.ChunkedArray) -> Documents:
        """Return one document per record; what is wrong with a record stands in ``Documents.bad``.

        Raises:
            DataError: The column's type is none the task can read.
        """
        return self.task.encode(column)

    def padded(self, documents: Documents) -> Iterator[Rows]:
        """Yield consecutive batches, a document a row: ``input_ids``, ``attention_mask``, ``labels``.

        Under ``layout: pad`` only; the rows of packed documents need a plan, see :meth:`packed`.

        Args:
            documents: Any number; rows of the last batch that have none carry no loss.
        """
        batches = pad.PaddedBatches(
            documents,
            self.buffers.shape,
            pad_id=self.tokenizer.pad_id,
            truncation_side=self.data.truncation_side,
            pad_labels=self.data.pad_labels,
        )
        for number in range(batches.num_batches):
            yield batches.write(number, self.buffers.take())

    def plan(self, lengths: Int64s) -> Pieces:
        """Return which part of which document stands in which row: a pure function of one window of lengths.

        Args:
            lengths: int64 [documents]: ``Documents.lengths`` of one window of one lane.
        """
        return pack_window(
            lengths,
            self.data.max_length,
            overflow=self.data.packing.overflow,
            truncation_side=self.data.truncation_side,
        )

    def packed(self, documents: Documents, pieces: Pieces) -> Iterator[Rows]:
        """Yield consecutive packed batches: ``input_ids``, ``labels``, ``segment_ids``, ``position_ids``.

        Args:
            documents: Those whose lengths were planned.
            pieces: Rows of the plan, as many as a batch has for each batch; the last one may have fewer.
        """
        batches = pack.PackedBatches(
            documents,
            pieces,
            self.buffers.shape,
            pad_id=self.tokenizer.pad_id,
            truncation_side=self.data.truncation_side,
            pad_labels=self.data.pad_labels,
        )
        for number in range(batches.num_batches):
            yield batches.write(number, self.buffers.take())

    def batch(self, column: pa.Array | pa.ChunkedArray) -> dict[str, Int32s]:
        """Return the arrays of one padded batch: ``input_ids``, ``attention_mask``, ``labels``, int32.

        Args:
            column: At most as many records as the batch has rows.

        Raises:
            ValueError: More records.
        """
        if len(column) > self.buffers.shape[0]:
            raise ValueError(f"{len(column)} records for {self.buffers.shape[0]} rows")
        return next(self.padded(self.encode(column))).arrays


def sample_texts(data: DataSpec, tokenizer: Tokenizer, column: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the texts of records as an engine will get them, for :func:`tpuworker.tokens.choose.judge_engines`.

    Args:
        data: The job's data section.
        tokenizer: Its tokenizer; a conversation is rendered by its chat template.
        column: Records of the user's data, some 2,000 of them.
    """
    if data.task == "conversation":
        rendered, _ = render_column(column, ChatTemplate(tokenizer, wants_spans=False), data.conversation)
        return [item.text for item in rendered if item.text]
    texts, _ = usable_texts(column)
    strings: list[str] = texts.to_pylist()
    return strings


def make_pipeline(data: DataSpec, tokenizer: Tokenizer, engine: Engine, num_rows: int) -> Pipeline:
    """Put task and layout of a job together.

    Args:
        data: The job's data section.
        tokenizer: From :func:`tpuworker.tokens.resolve.load_tokenizer`.
        engine: From :func:`tpuworker.tokens.choose.make_engine`.
        num_rows: Rows of this host's part of a batch.

    Raises:
        SpecError: The task needs something the tokenizer does not have.
    """
    return Pipeline(
        data=data,
        tokenizer=tokenizer,
        task=task_for(data, tokenizer, engine),
        engine=f"{engine.name} {engine.version}",
        records_per_call=1024 if engine.name != "reference" else 256,
        calls_at_once=1 if engine.name != "reference" else 2,
        buffers=RowBuffers(pack.ARRAYS if data.layout == "pack" else pad.ARRAYS, num_rows, data.max_length),
    )
