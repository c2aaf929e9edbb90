"""The pass that exact packing begins with: tokens of every document, each host its share; and the rows they fill."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import bad_rows, refusal
from tpuworker.data.counters import Counters
from tpuworker.data.index import Index, SourceIndex
from tpuworker.data.job import DataJob, Host
from tpuworker.data.rows import GatheredRows, UnitReader, place_of
from tpuworker.data.sequence import RowRefs
from tpuworker.data.tokenising import make_tokenising
from tpuworker.data.workers import Workers
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import count_rows
from tpuworker.storage import Storage, is_remote

Int32s = npt.NDArray[np.int32]
#: All-gather among the hosts: a name and this host's bytes to the bytes of every host by rank.
Exchange = Callable[[str, bytes], list[bytes]]
#: A name and an action to its result, if the action went well on every host.
Together = Callable[[str, Callable[[], Any]], Any]
_THREADS = 2
_AHEAD = 4
#: Documents without tokens that are named one by one.
_SHOWN = 10


def measured(
    job: DataJob,
    index: Index,
    pipeline: Any,
    identity: Host,
    *,
    exchange: Exchange | None = None,
    together: Together | None = None,
    storage: Storage | None = None,
) -> Index:
    """Return the index with token counts, if the job packs exactly; else the index itself.

    Every host tokenises its share of the units and all get all counts. With ``spec.data.cache`` the counts are kept
    there under what decides them, so that only the first run makes the pass.

    Args:
        job: The job.
        index: Its index, the same on all hosts.
        pipeline: Has ``encode``, ``plan`` and ``fingerprint``.
        identity: Which host of how many this is.
        exchange: How hosts talk; not needed for one host.
        together: Runs what can fail on every host and fails on all of them if it fails on one.
        storage: How bytes are read.

    Raises:
        DataError: Bad records under ``on_bad_record: fail``.
    """
    spec = job.data
    if spec.layout != "pack" or spec.packing_form != "exact" or index.lengths:
        return index
    talk: Exchange = exchange or (lambda _, mine: [mine])
    storage = storage or Storage()
    place = _Kept.of(job, index, pipeline, storage)
    known = talk("known token counts", place.read() if place and identity.host_rank == 0 else b"")[0]
    if not known:
        both = together or (lambda _, action: action())
        mine = both("measuring documents", lambda: _measure(job, index, pipeline, identity, storage))
        parts = talk(
            "token counts", zlib.compress(json.dumps([len(m) for m in mine]).encode() + b"\n" + _bytes(mine), 1)
        )
        known = zlib.compress(_bytes(_merged(index, [_parts(part) for part in parts])), 1)
        if place and identity.host_rank == 0:
            place.write(known)
    flat = np.frombuffer(zlib.decompress(known), dtype=np.int32)
    lengths = tuple(np.split(flat, np.cumsum([source.num_rows for source in index.sources])[:-1]))
    sources = tuple(
        replace(source, notes=(*source.notes, *_empty_ones(source, np.flatnonzero(each == 0))))
        for source, each in zip(index.sources, lengths, strict=True)
    )
    rows = [count_rows(each.astype(np.int64), spec.max_length, overflow=spec.packing.overflow) for each in lengths]
    return replace(index, sources=sources, lengths=lengths, window_rows=tuple(rows))


def _empty_ones(source: SourceIndex, ordinals: npt.NDArray[Any]) -> list[str]:
    """Return the note that says which documents have no token: no batch will hold them, so none will tell of them."""
    if not len(ordinals):
        return []
    ends = np.cumsum(source.unit_rows)
    units = np.searchsorted(ends, ordinals[:_SHOWN], side="right")
    rows = ordinals[:_SHOWN] - (ends - source.unit_rows)[units]
    places = [str(place_of(source, int(unit), int(row))) for unit, row in zip(units, rows, strict=True)]
    more = [] if len(ordinals) <= _SHOWN else [f"and {len(ordinals) - _SHOWN:,} more"]
    what = (
        "1 document without tokens takes" if len(ordinals) == 1 else f"{len(ordinals):,} documents without tokens take"
    )
    return [f"{what} no place: {'; '.join([*places, *more])}"]


def _units(index: Index, rank: int, num_hosts: int) -> list[tuple[int, int]]:
    every = [(source.number, unit) for source in index.sources for unit in range(source.num_units)]
    return every[rank::num_hosts]


def _measure(job: DataJob, index: Index, pipeline: Any, identity: Host, storage: Storage) -> list[Int32s]:
    """Return the token counts of this host's units, int32 [rows] each."""
    counters = Counters()
    reader, workers = UnitReader(index, storage, counters), Workers(_THREADS, "measure")
    units = _units(index, identity.host_rank, identity.num_hosts)
    tokenising = make_tokenising(pipeline, reader, index, counters, storage=storage)

    def fetched(unit: tuple[int, int], wanted: list[tuple[int, int]]) -> GatheredRows:
        rows = np.arange(index.sources[unit[0]].unit_rows[unit[1]])
        refs = RowRefs(np.full_like(rows, unit[0]), np.full_like(rows, unit[1]), rows, ())
        return tokenising.fetch(refs, wanted)

    def lengths_of(gathered: GatheredRows) -> Int32s:
        documents = tokenising.documents(gathered)
        bad = bad_rows(reader, gathered, documents)
        if bad and job.data.on_bad_record == "fail":
            raise refusal(tuple(row for _, row in bad))
        return documents.lengths.astype(np.int32)  # type: ignore[no-any-return]

    try:
        found = []
        for first in range(0, len(units), _AHEAD):
            batch = units[first : first + _AHEAD]
            wanted = [*batch, *units[first + _AHEAD : first + 2 * _AHEAD]]
            coming = [workers.submit(lengths_of, fetched(unit, wanted)) for unit in batch]
            found += [each.result() for each in coming]
        return found
    finally:
        workers.stop()
        reader.close()


def _bytes(arrays: list[Int32s]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def _parts(payload: bytes) -> list[Int32s]:
    head, _, body = zlib.decompress(payload).partition(b"\n")
    counts = json.loads(head)
    return np.split(np.frombuffer(body, dtype=np.int32), np.cumsum(counts)[:-1]) if counts else []


def _merged(index: Index, parts: list[list[Int32s]]) -> list[Int32s]:
    """Return the counts of all units in order, from those of the hosts, who took them in turn."""
    num_units = index.num_units
    if sum(map(len, parts)) != num_units:
        found = f"token counts of {sum(map(len, parts))} units"
        raise DataError([Fault("token counts of the hosts", found, f"those of {num_units}")])
    return [parts[unit % len(parts)][unit // len(parts)] for unit in range(num_units)]


class _Kept:
    """The counts in the cache directory."""

    def __init__(self, path: str, storage: Storage) -> None:
        self._system, self._path = storage.system(path) if is_remote(path) else storage.system(f"file://{path}")

    @classmethod
    def of(cls, job: DataJob, index: Index, pipeline: Any, storage: Storage) -> _Kept | None:
        """Return where counts of this data under this tokenizer are kept, or None without a cache."""
        if job.data.cache is None:
            return None
        decides = {name: value for name, value in pipeline.fingerprint.items() if name != "layout"}
        # Counts of a run that put up with bad records must not spare another one from refusing them.
        known = [decides, index.fingerprints, job.data.on_bad_record == "fail"]
        name = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]
        return cls(f"{job.data.cache.rstrip('/')}/token-counts-{name}", storage)

    def read(self) -> bytes:
        """Return the counts, or nothing if there are none that are whole."""
        try:
            content: bytes = self._system.cat_file(self._path)
            digest, body = content[:32], content[32:]
            return body if hashlib.sha256(body).digest() == digest else b""
        except Exception:  # a cache that cannot be read costs a pass, never the job
            return b""

    def write(self, counts: bytes) -> None:
        """Keep the counts, whole or not at all."""
        try:
            self._system.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            self._system.pipe_file(self._path, hashlib.sha256(counts).digest() + counts)
        except Exception:  # as above; a part that was written fails its digest
            return


__all__ = ["Exchange", "Together", "measured"]
