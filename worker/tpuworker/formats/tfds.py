"""Prepared TFDS datasets: which files a split has, from the dataset's own description; TensorFlow is not needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tpuworker.errors import Fault, InputError
from tpuworker.formats.records import ArrayRecordFormat, TfRecordFormat
from tpuworker.spec.data import TfdsSource
from tpuworker.storage import FileInfo, Storage, redact

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_DEFAULT_DIRECTORY = "~/tensorflow_datasets"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_FORMATS = {"array_record": ArrayRecordFormat.name, "tfrecord": TfRecordFormat.name}


def resolve_tfds(source: TfdsSource, storage: Storage, place: str) -> list[tuple[FileInfo, str]]:
    """Return the shards of a split, each with its format.

    Args:
        source: The source: ``name``, ``name/config``, each with ``:version`` if wanted; the newest version otherwise.
        storage: How bytes are read.
        place: Path in the spec, for messages.

    Raises:
        InputError: Not prepared there, no such split, or a file format that is not array_record or tfrecord.
    """
    info = _find(source, storage, place)
    with storage.open(info) as stream:
        told: dict[str, Any] = json.loads(stream.read())
    splits = {split["name"]: split for split in told.get("splits", [])}
    if source.split not in splits:
        wanted = f"one of {', '.join(splits)}" if splits else "a prepared dataset with splits"
        hint = "part of a split is taken with data.filter or train.steps"
        raise InputError([Fault(f"{place}.split", repr(source.split), wanted, hint)])
    kind = told.get("fileFormat", "tfrecord")
    if kind not in _FORMATS:
        hint = "prepare it with file_format=array_record"
        raise InputError([Fault(f"{place}.tfds", f"files of format {kind}", "array_record or tfrecord", hint)])
    split = splits[source.split]
    lengths = split["shardLengths"]
    directory = info.url.rsplit("/", 1)[0]
    template = split.get("filepathTemplate") or _TEMPLATE
    names = [
        template.format(
            DATASET=told["name"],
            SPLIT=source.split,
            FILEFORMAT=kind,
            SHARD_INDEX=f"{shard:05d}",
            NUM_SHARDS=f"{len(lengths):05d}",
            SHARD_X_OF_Y=f"{shard:05d}-of-{len(lengths):05d}",
        )
        for shard in range(len(lengths))
    ]
    return [(file, _FORMATS[kind]) for file in storage.infos([f"{directory}/{name}" for name in names])]


def _find(source: TfdsSource, storage: Storage, place: str) -> FileInfo:
    """Return the dataset_info.json that is meant."""
    root = (source.data_dir or str(Path(_DEFAULT_DIRECTORY).expanduser())).rstrip("/")
    name, _, version = source.tfds.partition(":")
    patterns = [f"{root}/{name}/{inside}dataset_info.json" for inside in ("", "*/", "*/*/")]
    found: list[FileInfo] = []
    for pattern in patterns:
        try:
            found += storage.resolve([pattern])
        except InputError:
            continue
    known = {file.url: file.url.rsplit("/", 2)[1] for file in found}
    fitting = [file for file in found if not version or known[file.url] == version]
    if not fitting:
        have = ", ".join(sorted(set(known.values())))
        there = f"versions {have}" if found else f"nothing prepared under {redact(root)}/{name}"
        wanted = f"version {version}" if version else "a prepared dataset"
        hint = "prepare it with tfds build --file_format=array_record, and set data_dir"
        raise InputError([Fault(f"{place}.tfds", f"{source.tfds!r}: {there}", wanted, hint)])
    configs = {file.url.rsplit("/", 2)[0] for file in fitting}
    if len(configs) > 1:
        names = ", ".join(sorted(config.removeprefix(f"{root}/") for config in configs))
        raise InputError([Fault(f"{place}.tfds", f"{source.tfds!r} in several configurations", f"one of {names}")])
    return max(fitting, key=lambda file: _numbers(known[file.url]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if _VERSION.fullmatch(version) else ()
