"""The pass that exact packing begins with: tokens of every document, each host its share; and the rows they fill."""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tpuworker.data.batches import BadRow, bad_rows, refusal
from tpuworker.data.counters import Counters
from tpuworker.data.index import Index, SourceIndex
from tpuworker.data.job import DataJob, Exchange, Host, Together
from tpuworker.data.rows import GatheredRows, UnitReader, place_of
from tpuworker.data.sequence import RowRefs
from tpuworker.data.tokenising import make_tokenising
from tpuworker.errors import DataError, Fault
from tpuworker.layout.pieces import count_rows
from tpuworker.storage import Storage, is_remote
from tpuworker.tokens.documents import Documents
from tpuworker.workers import Workers

Int32s = npt.NDArray[np.int32]
_THREADS = 2
_AHEAD = 4
#: Documents without tokens that are named one by one.
_SHOWN = 10
#: Of these that a host tells the others of; more are only counted.
_TOLD = 100
#: Why a sound record takes no place.
_NOTHING = "no tokens"
#: Version of what is kept in the cache.
_FORMAT = 2


@dataclass(frozen=True)
class _Counts:
    """What a pass over documents found.

    Attributes:
        lengths: Tokens of the documents of each unit that was measured, int32 [rows] each.
        reasons: Source and reason to the number of documents without tokens.
        told: (place of its unit in ``lengths``, row of the unit, reason, detail) of the first of these.
    """

    lengths: list[Int32s]
    reasons: Counter[tuple[int, str]]
    told: list[tuple[int, int, str, str]]

    def to_bytes(self) -> bytes:
        reasons = [[*key, count] for key, count in self.reasons.items()]
        head = {"counts": [len(each) for each in self.lengths], "reasons": reasons, "told": self.told}
        body = b"".join(each.tobytes() for each in self.lengths)
        return zlib.compress(json.dumps(head).encode() + b"\n" + body, 1)

    @classmethod
    def from_bytes(cls, payload: bytes) -> _Counts:
        line, _, body = zlib.decompress(payload).partition(b"\n")
        head = json.loads(line)
        counts = head["counts"]
        lengths = np.split(np.frombuffer(body, dtype=np.int32), np.cumsum(counts)[:-1]) if counts else []
        reasons = Counter({(source, reason): count for source, reason, count in head["reasons"]})
        return cls(lengths, reasons, [tuple(each) for each in head["told"]])


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
        parts = talk("token counts", mine.to_bytes())
        known = _merged(index, [_Counts.from_bytes(part) for part in parts]).to_bytes()
        if place and identity.host_rank == 0:
            place.write(known)
    counts = _Counts.from_bytes(known)
    firsts = np.cumsum([0, *(source.num_units for source in index.sources)])
    lengths = tuple(np.concatenate(counts.lengths[a:b]) for a, b in itertools.pairwise(firsts.tolist()))
    sources = tuple(
        replace(source, notes=(*source.notes, *_empty_ones(source, counts, first)))
        for source, first in zip(index.sources, firsts.tolist(), strict=False)
    )
    rows = [count_rows(each.astype(np.int64), spec.max_length, overflow=spec.packing.overflow) for each in lengths]
    return replace(index, sources=sources, lengths=lengths, window_rows=tuple(rows))


def _empty_ones(source: SourceIndex, counts: _Counts, first_unit: int) -> list[str]:
    """Return the note that says which documents have no token, and why: no batch will hold them, so none will tell."""
    reasons = {reason: count for (number, reason), count in sorted(counts.reasons.items()) if number == source.number}
    total = sum(reasons.values())
    if not total:
        return []
    mine = range(first_unit, first_unit + source.num_units)
    told = [each for each in counts.told if each[0] in mine][:_SHOWN]
    shown = [
        f"{place_of(source, unit - first_unit, row)}: {reason}" + (f" ({detail})" if detail else "")
        for unit, row, reason, detail in told
    ]
    more = [] if total <= len(shown) else [f"and {total - len(shown):,} more"]
    what = "1 document without tokens takes" if total == 1 else f"{total:,} documents without tokens take"
    why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    return [f"{what} no place ({why}): {'; '.join([*shown, *more])}"]


def _units(index: Index, rank: int, num_hosts: int) -> list[tuple[int, int]]:
    every = [(source.number, unit) for source in index.sources for unit in range(source.num_units)]
    return every[rank::num_hosts]


def _measure(job: DataJob, index: Index, pipeline: Any, identity: Host, storage: Storage) -> _Counts:
    """Return what this host's units hold."""
    counters = Counters()
    reader, workers = UnitReader(index, storage, counters), Workers(_THREADS, "measure")
    units = _units(index, identity.host_rank, identity.num_hosts)
    tokenising = make_tokenising(pipeline, reader, index, counters, storage=storage, is_hurried=False)

    def fetched(unit: tuple[int, int], wanted: list[tuple[int, int]]) -> GatheredRows:
        rows = np.arange(index.sources[unit[0]].unit_rows[unit[1]])
        refs = RowRefs(np.full_like(rows, unit[0]), np.full_like(rows, unit[1]), rows, ())
        return tokenising.fetch(refs, wanted)

    def found_in(gathered: GatheredRows) -> tuple[Int32s, list[tuple[int, BadRow]]]:
        documents = cast("Documents", tokenising.documents(gathered))
        bad = bad_rows(reader, gathered, documents)
        if bad and job.data.on_bad_record == "fail":
            raise refusal(tuple(row for _, row in bad))
        return documents.lengths.astype(np.int32), bad

    found = _Counts([], Counter(), [])
    try:
        for first in range(0, len(units), _AHEAD):
            batch = units[first : first + _AHEAD]
            wanted = [*batch, *units[first + _AHEAD : first + 2 * _AHEAD]]
            coming = [workers.submit(found_in, fetched(unit, wanted)) for unit in batch]
            for unit, each in zip(batch, coming, strict=True):
                lengths, bad = each.result()
                why = {row: (record.reason, record.detail) for row, record in bad}
                empty = [(row, *why.get(row, (_NOTHING, ""))) for row in np.flatnonzero(lengths == 0).tolist()]
                found.reasons.update((unit[0], reason) for _, reason, _ in empty)
                room = max(0, _TOLD - len(found.told))
                found.told.extend((len(found.lengths), *row) for row in empty[:room])
                found.lengths.append(lengths)
        return found
    finally:
        workers.stop()
        reader.close()


def _merged(index: Index, parts: list[_Counts]) -> _Counts:
    """Return what is known of all units in order, from what the hosts found, who took them in turn."""
    num_units = index.num_units
    measured_units = sum(len(part.lengths) for part in parts)
    if measured_units != num_units:
        found = f"token counts of {measured_units} units"
        raise DataError([Fault("token counts of the hosts", found, f"those of {num_units}")])
    lengths = [parts[unit % len(parts)].lengths[unit // len(parts)] for unit in range(num_units)]
    told = [(place * len(parts) + rank, *rest) for rank, part in enumerate(parts) for place, *rest in part.told]
    return _Counts(lengths, sum((part.reasons for part in parts), Counter()), sorted(told)[:_TOLD])  # type: ignore[arg-type]


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
        known = [_FORMAT, decides, index.fingerprints, job.data.on_bad_record == "fail"]
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
