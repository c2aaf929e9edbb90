"""What a contender is: a module with ``open_stream``; and what all that tokenise share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench.corpus.store import DONE
from bench.task import Task

#: A delivered batch by name. Arrays are [rows, length]; a raw tokenizer delivers ``lengths`` [texts] only.
Arrays = Mapping[str, npt.NDArray[Any]]

#: A little more than a token has.
_BYTES_PER_TOKEN = 4
#: Label of a position that carries no loss.
IGNORED = -100


class Stream(Protocol):
    """An open loader: batches in order, and its place among them."""

    #: Batches of one epoch on this host: about, where they are packed; zero if the contender cannot know.
    num_batches: int

    def __iter__(self) -> Iterator[Arrays]:
        """Yield batches until the epochs are over."""

    def state(self) -> object:
        """Return what a new process needs to go on after the batch taken last, something pickle can hold.

        Raises:
            NotImplementedError: The contender has no such thing.
        """


#: Every contender's module has this function under the name ``open_stream``; a state comes from ``Stream.state``.
OpenStream = Callable[[Task, object], Stream]


def use_rust_threads(on: bool) -> None:
    """Decide before the first call whether the reference tokenizer splits a batch over threads of its own."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if on else "false"


def load_reference(task: Task) -> Any:
    """Return the reference tokenizer of a task, without truncation or padding of its own."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(task.tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def pad_id_of(tokenizer: Any) -> int:
    """Return the id that fills rows: the corpus tokenizers' pad token, else zero."""
    from bench.corpus.tokenizers import PAD_TOKEN

    found = tokenizer.token_to_id(PAD_TOKEN)
    return 0 if found is None else int(found)


def padded(encodings: Sequence[Any], length: int, pad_id: int) -> dict[str, npt.NDArray[np.int32]]:
    """Return the three arrays of a padded batch, the way a careful user writes it in numpy."""
    ids = np.full((len(encodings), length), pad_id, np.int32)
    lengths = np.empty(len(encodings), np.int64)
    for row, encoding in enumerate(encodings):
        tokens = encoding.ids[:length]
        lengths[row] = len(tokens)
        ids[row, : len(tokens)] = tokens
    mask = np.arange(length) < lengths[:, None]
    return {"input_ids": ids, "attention_mask": mask.astype(np.int32), "labels": np.where(mask, ids, IGNORED)}


def rows_in(files: Sequence[str]) -> int:
    """Return the rows of parquet files, from their footers."""
    import pyarrow.parquet as pq

    return sum(pq.ParquetFile(path).metadata.num_rows for path in files)


def packed_batches(task: Task) -> int:
    """Return about the packed batches of an epoch on one host: rather less than it has than more."""
    num_bytes = int(json.loads((Path(task.corpus) / DONE).read_text())["num_bytes"])
    return num_bytes // (_BYTES_PER_TOKEN * task.length * task.num_rows * task.world)


def parquet_files(task: Task) -> list[str]:
    """Return the corpus as parquet files."""
    return task.files("parquet", ".parquet")


def linked_copy(task: Task, format_name: str) -> Path:
    """Return a directory of links to the corpus' files, so that what a contender writes beside them is its own."""
    target = Path(task.scratch) / format_name
    target.mkdir(parents=True, exist_ok=True)
    for path in task.folder(format_name).iterdir():
        link = target / path.name
        if not link.exists() and not path.name.startswith("."):
            link.symlink_to(path)
    return target
