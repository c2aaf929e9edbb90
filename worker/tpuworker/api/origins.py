"""From what a caller names or holds to rows: files, a hub name, a directory, TFDS, or any object of ``datasets``."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuworker.api.columns import find_column, token_columns
from tpuworker.api.meeting import Meeting, shared_index
from tpuworker.api.objects import DatasetTable, Table, indexed_rows
from tpuworker.api.recipe import Indexed, ReaderJob, Streamed
from tpuworker.api.refusals import refuse
from tpuworker.api.tfds_table import TfdsTable
from tpuworker.api.token_files import indexed_tokens
from tpuworker.data.indexing import build_index
from tpuworker.formats import format_named
from tpuworker.spec.data import DataSpec

#: ``TFDS`` names are written with it where a hub dataset could have the same name.
TFDS_PREFIX = "tfds:"


@dataclass(frozen=True)
class Named:
    """What a name needs besides itself.

    Attributes:
        split: Split of a hub or TFDS dataset. Files have none but ``train``.
        config: Configuration of a hub dataset.
        revision: Commit, tag or branch of a hub dataset.
        data_dir: Where TFDS prepared a dataset. Default: ``TFDS_DATA_DIR``, else where TFDS prepares by itself.
    """

    split: str = "train"
    config: str | None = None
    revision: str | None = None
    data_dir: str | None = None


def source_of(name: str, named: Named) -> dict[str, Any]:
    """Return the ``spec.data.sources`` entry that a name stands for.

    A pattern, a URL, or a file with a known ending is files; ``tfds:name`` is TFDS; anything else (also a directory) is
    opened as ``datasets.load_dataset`` opens it.

    Args:
        name: As the caller wrote it.
        named: Its split and the like.

    Raises:
        SpecError: Files with a split, or with what only a hub dataset has.
    """
    hub_only = {key: value for key, value in (("config", named.config), ("revision", named.revision)) if value}
    if name.startswith(TFDS_PREFIX):
        _refuse_hub_only(hub_only, "a TFDS dataset")
        directory = named.data_dir or os.environ.get("TFDS_DATA_DIR")
        place = {"data_dir": directory} if directory else {}
        return {"tfds": name.removeprefix(TFDS_PREFIX), "split": named.split, **place}
    path = Path(name)
    is_files = glob.has_magic(name) or "://" in name or (format_named(path.name) is not None and not path.is_dir())
    if not is_files:
        given = {"name": named.config, "revision": named.revision}
        return {"hub": name, "split": named.split, **{key: value for key, value in given.items() if value}}
    _refuse_hub_only(hub_only, "files")
    if named.split != "train":
        refuse("split", repr(named.split), "'train': files have no other split", "name the files of the split")
    return {"files": name}


def _refuse_hub_only(given: dict[str, str], what: str) -> None:
    for argument, value in given.items():
        refuse(argument, repr(value), f"none, for {what}: only a dataset of the hub has one")


def open_text(dataset: Any, data: DataSpec, meeting: Meeting | None = None) -> Indexed | Streamed:
    """Return the rows of a text or conversation column.

    Args:
        dataset: An object of ``datasets``, or a name, which ``data`` has as its source.
        data: The data section.
        meeting: Where ranks can talk, one of them lists named data for all.

    Raises:
        InputError: No such data, or no such column.
        SpecError: An object that holds no rows of one split.
    """
    if isinstance(dataset, str | Path):
        return Indexed(shared_index(meeting, lambda: build_index(ReaderJob(data))))
    argument = "conversation_column" if data.task == "conversation" else "text_column"
    if is_stream(dataset):
        return Streamed(dataset, (find_column(column_names(dataset), data.column_candidates, argument),))
    table = _table_of(dataset)
    return indexed_rows(table, (find_column(table.column_names, data.column_candidates, argument),), "dataset")


def open_tokens(
    dataset: Any, named: Named, meeting: Meeting | None = None
) -> tuple[Indexed | Streamed, tuple[str, ...], int]:
    """Return rows that were tokenised before, their token columns, and the length of the first one.

    Args:
        dataset: A name, or an object of ``datasets``.
        named: Split and the like of a name.
        meeting: Where ranks can talk, one of them lists named data for all.

    Raises:
        InputError: No such data, no ``input_ids``, or no rows.
        SpecError: An object that holds no rows of one split.
    """
    if isinstance(dataset, str | Path):
        origin, names, first = indexed_tokens(source_of(str(dataset), named), meeting)
        return origin, names, _length(first)
    if is_stream(dataset):
        first = first_rows(dataset)
        names = token_columns(first.column_names)
        return Streamed(dataset, names), names, _length(first)
    table = _table_of(dataset)
    names = token_columns(table.column_names)
    return indexed_rows(table, names, "dataset"), names, _length(table.rows([0]))


def _table_of(dataset: Any) -> Table:
    return dataset if isinstance(dataset, TfdsTable) else DatasetTable(dataset)


def is_stream(dataset: Any) -> bool:
    """Whether this is a ``datasets.IterableDataset``; refuses what is no dataset of that library at all."""
    if isinstance(dataset, TfdsTable):
        return False
    if isinstance(dataset, str | Path):
        hint = "datasets.load_dataset opens it; create_streaming_dataset and create_jax_dataset take names"
        refuse("dataset", f"the name {str(dataset)!r}", "an object of the datasets library", hint)
    import datasets

    if isinstance(dataset, datasets.DatasetDict | datasets.IterableDatasetDict):
        refuse("dataset", f"{len(dataset)} splits: {', '.join(map(str, dataset))}", "one of them", "dataset['train']")
    if isinstance(dataset, datasets.IterableDataset):
        if dataset._distributed is not None:
            hint = "hand over the whole stream with world_size and rank: every row is delivered to one reader"
            refuse("dataset", "a stream that split_dataset_by_node has split", "the whole stream", hint)
        return True
    if not isinstance(dataset, datasets.Dataset):
        hint = "datasets.Dataset.from_list, from_generator or load_dataset make one"
        refuse("dataset", f"a {type(dataset).__name__}", "a name or an object of the datasets library", hint)
    return False


def column_names(stream: Any) -> list[str]:
    """Return the columns of a stream; where it does not tell (after ``map``), its first row does."""
    return list(stream.column_names or first_rows(stream).column_names)


def first_rows(stream: Any) -> Any:
    """Return a ``pyarrow.Table`` of a stream's first row.

    Raises:
        SpecError: It has none.
    """
    first = next(iter(stream.with_format("arrow").iter(batch_size=1)), None)
    if first is None:
        refuse("dataset", "a stream without rows", "some rows")
    return first


def _length(first: Any) -> int:
    import pyarrow as pa

    kind = first.column("input_ids").type
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind) and not pa.types.is_fixed_size_list(kind):
        refuse("dataset", f"input_ids of type {kind}", "lists of token ids")
    return len(first.column("input_ids")[0])
