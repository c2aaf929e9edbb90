"""Hub names and every format of the ``datasets`` library: it resolves and opens; order and shards stay ours.

Where a dataset consists of files that this package reads itself (parquet, JSON lines, Arrow, text), ``datasets`` only
says which files a split has. Everything else is read through it shard by shard, its shuffle off: a shard is copied once
to scratch as Arrow batches, which are the units, so that a unit in the middle can be entered.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from tpuworker.errors import DataError, Fault, FaultsError, InputError, RetryError
from tpuworker.formats.arrow import ArrowFormat
from tpuworker.formats.base import Decoded, FileUnits
from tpuworker.formats.values import projected
from tpuworker.spec.data import HubSource
from tpuworker.storage import FileInfo, NotFoundError, Storage, in_one_line, redact, with_retries

Result = TypeVar("Result")

_SCHEME = "datasets://"
_ROWS_PER_BATCH = 1000
#: Builders of ``datasets`` whose files this package reads itself, and the format that reads them.
_OWN_FORMATS = {"parquet": "parquet", "arrow": "arrow", "text": "text", "json": "jsonl"}


def resolve_hub(source: HubSource, storage: Storage, place: str) -> list[tuple[FileInfo, str]]:
    """Return the files of a split with the format of each, or its shards with the format ``datasets``.

    Args:
        source: The source.
        storage: How bytes are read.
        place: Path in the spec, for messages.

    Raises:
        InputError: No such dataset, configuration or split; with those that there are.
        UnavailableError: The hub kept failing.
    """
    builder = _ask(lambda: _builder(source), source, storage, place)
    files = getattr(builder.config, "data_files", None) or {}
    kind = type(builder).__module__.split(".")[2] if ".packaged_modules." in type(builder).__module__ else ""
    splits = [str(split) for split in files] or [str(split) for split in builder.info.splits or ()]
    if splits and source.split not in splits:
        hint = "a split is a name here; take part of it with data.filter or train.steps"
        raise InputError([Fault(f"{place}.split", repr(source.split), f"one of {', '.join(splits)}", hint)])
    if files and kind in _OWN_FORMATS:
        listed = storage.infos([str(url) for url in files[source.split]])
        if kind != "json" or _is_lines(listed[0], storage):
            return [(file, _OWN_FORMATS[kind]) for file in listed]
    stream = _ask(lambda: _stream(source), source, storage, place)
    return [(_shard_file(source, shard, stream.num_shards), DatasetsFormat.name) for shard in range(stream.num_shards)]


class DatasetsFormat:
    """Shards of a streamed ``datasets`` dataset; never chosen by a file's name."""

    name: ClassVar[str] = "datasets"
    endings: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._arrow = ArrowFormat()

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:
        """Read the shard through: nothing else can tell its rows."""

        def indexed(path: Path) -> FileUnits:
            with pa.memory_map(str(path)) as mapped:
                checksum = zlib.crc32(mapped.read_buffer())
            units = self._arrow.index(storage, FileInfo(str(path), path.stat().st_size), wanted)
            return replace(units, fingerprint=f"{checksum:08x}")

        return _with_copy(storage, file, tuple(wanted), indexed)

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return one batch of the shard's copy, which is made again where scratch let go of it."""

        def batch(path: Path) -> Decoded:
            return self._arrow.read(storage, FileInfo(str(path), path.stat().st_size), start, stop, None)

        wanted = None if columns is None else tuple(columns.names)
        return projected(_with_copy(storage, file, wanted, batch).table, columns)


def _with_copy(
    storage: Storage, file: FileInfo, wanted: tuple[str, ...] | None, use: Callable[[Path], Result]
) -> Result:
    """Return what ``use`` makes of the shard's copy, which has the first column of ``wanted`` it finds (None: all)."""
    source, shard, num_shards = _parse(file.url)

    def copy(path: Path) -> None:
        _write(path, _tables(source, shard, num_shards, wanted))

    def make(path: Path) -> None:
        with_retries(lambda: copy(path), url=f"{source.hub}, shard {shard}", policy=storage.policy)

    key = hashlib.sha256(json.dumps([file.url, wanted]).encode()).hexdigest()[:32]
    return storage.scratch.use(f"{key}.arrow", make, use)


def _builder(source: HubSource) -> Any:
    import datasets

    return datasets.load_dataset_builder(
        source.hub, name=source.name, revision=source.revision, data_files=source.data_files
    )


def _stream(source: HubSource) -> Any:
    import datasets

    return datasets.load_dataset(
        source.hub,
        name=source.name,
        split=source.split,
        revision=source.revision,
        data_files=source.data_files,
        streaming=True,
    )


def _ask(action: Any, source: HubSource, storage: Storage, place: str) -> Any:
    """Ask the library under the retry policy and say its refusal in terms of the spec."""
    try:
        return with_retries(action, url=source.hub, policy=storage.policy)
    except RetryError:
        raise
    except NotFoundError as error:
        hint = "see the name; a private one needs HF_TOKEN among train.secrets"
        raise InputError([Fault(f"{place}.hub", repr(source.hub), "a dataset that is there", hint)]) from error
    except FaultsError as error:
        cause = error.__cause__ or error
        wanted = f"a dataset that the datasets library can open, with configuration {source.name or 'by default'}"
        raise InputError([Fault(f"{place}.hub", f"{source.hub!r}: {in_one_line(cause)}", wanted)]) from error


def _is_lines(file: FileInfo, storage: Storage) -> bool:
    """Whether a .json file holds an object a line; the library also reads arrays and objects over several lines."""
    head = b""
    for chunk in storage.plain_chunks(file):
        head += chunk
        if b"\n" in head or len(head) > (1 << 20):
            break
    try:
        return isinstance(json.loads(head.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]), dict)
    except ValueError:
        return False


def _shard_file(source: HubSource, shard: int, num_shards: int) -> FileInfo:
    asked = {"hub": source.hub, "split": source.split}
    asked |= {key: value for key in ("name", "revision", "data_files") if (value := getattr(source, key))}
    return FileInfo(f"{_SCHEME}{json.dumps(asked, sort_keys=True)}#{shard}/{num_shards}", 1)


def _parse(url: str) -> tuple[HubSource, int, int]:
    body, _, part = url.removeprefix(_SCHEME).rpartition("#")
    shard, _, num_shards = part.partition("/")
    return HubSource(**json.loads(body)), int(shard), int(num_shards)


def _tables(source: HubSource, shard: int, num_shards: int, wanted: tuple[str, ...] | None) -> Iterator[Any]:
    stream = _stream(source)
    if stream.num_shards != num_shards:
        found = f"{stream.num_shards} shards"
        raise DataError([Fault(redact(source.hub), found, f"{num_shards}, as when it was indexed", "start anew")])
    for table in stream.shard(num_shards=num_shards, index=shard).with_format("arrow").iter(_ROWS_PER_BATCH):
        names = table.column_names if wanted is None else [name for name in wanted if name in table.column_names][:1]
        # A shard without the wanted column keeps all, so that the refusal can list them.
        yield table.select(names or table.column_names)


def _write(path: Path, tables: Iterator[Any]) -> None:
    """Write tables as one Arrow file; types that change from table to table are brought to the first one's."""
    first = next(tables, None)
    schema = pa.schema([]) if first is None else first.schema.remove_metadata()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        while first is not None:
            writer.write_table(first.replace_schema_metadata().cast(schema), max_chunksize=_ROWS_PER_BATCH)
            first = next(tables, None)
