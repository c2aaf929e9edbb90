"""Documents of the coming rows: tokenised as they are read, or picked out of units that the token cache keeps whole."""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tpuworker import arrow
from tpuworker.data.counters import Counters
from tpuworker.data.index import Index, SourceIndex
from tpuworker.data.rows import DEFAULT_BUDGET_BYTES, GatheredRows, UnitKey, UnitReader
from tpuworker.data.sequence import FILLER, RowRefs
from tpuworker.storage import Storage
from tpuworker.tokens.cache import CacheCounters, TokenCache
from tpuworker.tokens.documents import BadRecord, Documents, gather_documents
from tpuworker.tokens.engine import Int32s

Int64s = npt.NDArray[np.int64]
#: A unit of more decoded text is tokenised row by row each time: an entry is put together in RAM.
_MOST_BYTES = 256 << 20
_MOST_MAPPED = 4096

_log = logging.getLogger(__name__)


class Prepared(Protocol):
    """What a pipeline makes of records before they are put into rows: token ids, and what was found on the way."""

    @property
    def ids(self) -> Int32s:
        """All token ids, int32 [tokens]."""
        ...

    @property
    def bad(self) -> tuple[BadRecord, ...]:
        """Records that cannot be used, by their place."""
        ...

    @property
    def unlearnable(self) -> tuple[int, ...]:
        """Places of sound records of which no token that reaches the model carries loss."""
        ...


class Tokenising(Protocol):
    """How rows become documents."""

    def fetch(self, refs: RowRefs, wanted: Iterable[UnitKey]) -> GatheredRows:
        """Return what ``documents`` needs of rows; called by the reading thread alone.

        Args:
            refs: The rows.
            wanted: Their units and those that will be needed soon: they are kept, all others are let go.
        """
        ...

    @property
    def cache_counters(self) -> CacheCounters | None:
        """What the token cache did so far, if there is one."""
        ...

    def documents(self, gathered: GatheredRows) -> Prepared | None:
        """Return one document for each row, or None if the pipeline knows no documents; called by several threads."""
        ...


def make_tokenising(
    pipeline: Any,
    reader: UnitReader,
    index: Index,
    counters: Counters,
    *,
    storage: Storage,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    is_hurried: bool = True,
) -> Tokenising:
    """Return how rows become documents: through the token cache if the pipeline has one.

    Args:
        pipeline: Has ``encode`` and ``cache``, or only ``batch``.
        reader: Where rows come from.
        index: The units.
        counters: Where work is counted.
        storage: How bytes are read.
        budget_bytes: Bytes of found documents kept in RAM; those of a local cache are mapped and take none.
        is_hurried: The first rows are waited for; False where all rows are read and nobody waits for some of them.
    """
    cache = pipeline.cache(storage) if hasattr(pipeline, "cache") else None
    if cache is None:
        return FreshDocuments(reader, pipeline, counters)
    return CachedDocuments(
        reader, pipeline, counters, index=index, cache=cache, budget_bytes=budget_bytes, is_hurried=is_hurried
    )


class FreshDocuments:
    """Rows are tokenised as they are read."""

    def __init__(self, reader: UnitReader, pipeline: Any, counters: Counters) -> None:
        self._reader, self._pipeline, self._counters = reader, pipeline, counters

    @property
    def cache_counters(self) -> None:
        """There is no cache."""

    def fetch(self, refs: RowRefs, wanted: Iterable[UnitKey]) -> GatheredRows:
        """See :class:`Tokenising`."""
        self._reader.expect(dict.fromkeys(wanted))
        return self._reader.gather(refs)

    def documents(self, gathered: GatheredRows) -> Prepared | None:
        """See :class:`Tokenising`."""
        if not hasattr(self._pipeline, "encode"):
            return None
        return _encoded(self._pipeline, gathered.column, self._counters)


@dataclass(frozen=True)
class _CachedRows(GatheredRows):
    """Rows without text, but for those of units that the cache does not take.

    Attributes:
        fresh: The rows of such units.
        fresh_places: Where these stand, int64 [fresh rows].
    """

    fresh: GatheredRows | None = None
    fresh_places: Int64s | None = None


class CachedDocuments:
    """Rows are picked out of units that the cache holds; a unit that it lacks is tokenised whole, once, and kept there.

    The batches are those of :class:`FreshDocuments`: an entry holds the delivered rows of a unit in order, bad ones
    with their reasons. The first batch does not wait for whole units: of those that the cache lacks its rows alone are
    tokenised. Once the cache refuses an entry (it is full, or cannot be written), the units that it lacks are tokenised
    row by row, since the rows of a batch come from many units.
    """

    def __init__(
        self,
        reader: UnitReader,
        pipeline: Any,
        counters: Counters,
        *,
        index: Index,
        cache: TokenCache,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        is_hurried: bool = True,
    ) -> None:
        self._reader, self._pipeline, self._counters = reader, pipeline, counters
        self._index, self._cache, self._budget_bytes = index, cache, budget_bytes
        # A mapped entry holds a descriptor of the process.
        self._most_held = min(_MOST_MAPPED, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._lock = threading.Lock()
        self._held: OrderedDict[UnitKey, Documents] = OrderedDict()
        self._coming: dict[UnitKey, Future[Documents]] = {}
        self._fresh: set[UnitKey] = set()
        self._is_hurried = is_hurried
        self._has_warned = False

    def fetch(self, refs: RowRefs, wanted: Iterable[UnitKey]) -> GatheredRows:
        """See :class:`Tokenising`."""
        wanted = dict.fromkeys(wanted)
        with self._lock:
            for key in [key for key in self._held if key not in wanted]:
                del self._held[key]
        self._fresh &= wanted.keys()
        units = refs.touched
        self._fresh |= {key for key in units if key not in self._fresh and not self._is_taken(key)}
        fresh = self._fresh.copy()
        if self._is_hurried:
            self._is_hurried = False
            fresh |= {key for key in units if not self._is_found(key)}
        here = [places for key, places in refs.by_unit if key in fresh]
        if not here:
            return _CachedRows(None, refs, ())
        self._reader.expect([key for key in wanted if key in fresh])
        places = np.sort(np.concatenate(here))
        rows = RowRefs(refs.sources[places], refs.units[places], refs.rows[places], ())
        return _CachedRows(None, refs, (), self._reader.gather(rows), places)

    def documents(self, gathered: GatheredRows) -> Documents:
        """See :class:`Tokenising`."""
        refs = gathered.refs
        parts: list[tuple[Documents, Int64s]] = []
        places: list[Int64s] = []
        left = refs.sources != FILLER
        if isinstance(gathered, _CachedRows) and gathered.fresh is not None and gathered.fresh_places is not None:
            made = _encoded(self._pipeline, gathered.fresh.column, self._counters)
            parts.append((_with_reasons(made, gathered.fresh), np.arange(len(gathered.fresh_places))))
            places.append(gathered.fresh_places)
            left[gathered.fresh_places] = False
        for key, here in refs.by_unit:
            if left[here[0]]:
                parts.append((self.whole(key), refs.rows[here]))
                places.append(here)
        fillers = np.flatnonzero(refs.sources == FILLER)
        if len(fillers):
            parts.append((_nothing(len(fillers)), np.arange(len(fillers))))
            places.append(fillers)
        with self._counters.busy("read"):
            found = gather_documents(parts, np.concatenate(places))
        self._counters.add("read", rows=len(refs.sources), num_bytes=found.ids.nbytes)
        return found

    @property
    def cache_counters(self) -> CacheCounters:
        """What the cache did so far."""
        return self._cache.counters

    def whole(self, key: UnitKey) -> Documents:
        """Return the documents of a unit, found or made; two threads that ask for one unit make it once."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
            coming = self._coming.get(key)
            mine: Future[Documents] | None = None
            if coming is None:
                coming = mine = self._coming[key] = Future()
        if mine is not None:
            try:
                documents = self._cache.documents(self._name(key), lambda: self._made(key))
                self._hold(key, documents)
                mine.set_result(documents)
            except BaseException as error:  # whoever waits for the unit has to meet it, too
                mine.set_exception(error)
            finally:
                with self._lock:
                    del self._coming[key]
        return coming.result()

    def _is_taken(self, key: UnitKey) -> bool:
        """Whether the cache holds a unit or will."""
        if (num_bytes := int(self._index.sources[key[0]].unit_bytes[key[1]])) > _MOST_BYTES:
            if not self._has_warned:
                sentence = "token cache: a unit of %.1f GiB is too large for it and is tokenised each time"
                _log.warning(sentence, num_bytes / 2**30)
            self._has_warned = True
            return False
        with self._lock:
            if key in self._held or key in self._coming:
                return True
        return not self._cache.counters.refused or self._is_found(key)

    def _is_found(self, key: UnitKey) -> bool:
        """Whether the cache holds a unit now."""
        with self._lock:
            if key in self._held:
                return True
        found = self._cache.find(self._name(key))
        if found is not None:
            self._hold(key, found)
        return found is not None

    def _hold(self, key: UnitKey, documents: Documents) -> None:
        with self._lock:
            self._held[key] = documents
            used = sum(map(ram_bytes, self._held.values()))
            while len(self._held) > 1 and (used > self._budget_bytes or len(self._held) > self._most_held):
                _, oldest = self._held.popitem(last=False)
                used -= ram_bytes(oldest)

    def _name(self, key: UnitKey) -> str:
        return unit_name(self._index.sources[key[0]], key[1])

    def _made(self, key: UnitKey) -> Documents:
        gathered = self._reader.whole(key)
        parts = []
        records = self._pipeline.records_per_call
        for first in range(0, len(gathered.column), records):
            if self._reader.is_closed:
                raise InterruptedError("the loader was closed")
            made = _encoded(self._pipeline, gathered.column.slice(first, records), self._counters)
            parts.append((made, np.arange(made.num_documents)))
        return _with_reasons(parts[0][0] if len(parts) == 1 else gather_documents(parts), gathered)


def unit_name(source: SourceIndex, unit: int) -> str:
    """Return what decides the delivered records of a unit: content, place in the file, column, the rows left out.

    Not where the file lies, so that a copy of it finds the same entries.
    """
    file = int(source.unit_files[unit])
    kept = source.kept_rows(unit)
    return json.dumps(
        [
            source.files[file].name,
            source.files[file].size_bytes,
            source.formats[file],
            source.digests[file],
            int(source.unit_starts[unit]),
            int(source.unit_stops[unit]),
            int(source.unit_raw_rows[unit]),
            source.column,
            hashlib.sha256(source.column_type).hexdigest()[:16],
            "" if kept is None else hashlib.sha256(kept.astype("<i8").tobytes()).hexdigest()[:32],
        ]
    )


def _encoded(pipeline: Any, column: Any, counters: Counters) -> Documents:
    """Return the documents of a column, with the work counted."""
    with counters.busy("tokenise"):
        documents: Documents = pipeline.encode(column)
    counters.add("tokenise", rows=len(column), tokens=len(documents.ids), num_bytes=documents.ids.nbytes)
    return documents


def _with_reasons(documents: Documents, gathered: GatheredRows) -> Documents:
    """Return documents whose bad records have the reason of the decoder, where it was the first to find them bad."""
    nulls = arrow.nulls(gathered.column)
    found = {record.row: record for record in documents.bad}
    found |= {int(row): BadRecord(int(row), "null") for row in nulls}
    found |= {record.row: BadRecord(record.row, record.reason, record.detail) for record in gathered.bad}
    return replace(documents, bad=tuple(found[row] for row in sorted(found)))


def _nothing(count: int) -> Documents:
    """Return empty documents for places that no row fills."""
    bad = tuple(BadRecord(row, "null") for row in range(count))
    return Documents(np.zeros(0, np.int32), np.zeros(count + 1, np.int64), bad=bad)


def ram_bytes(documents: Documents) -> int:
    """Bytes that documents take of RAM; a mapped file takes none that the kernel could not have back."""
    arrays = [documents.ids, documents.offsets, *(() if documents.trainable is None else (documents.trainable,))]
    return sum(array.nbytes for array in arrays if not _is_mapped(array))


def _is_mapped(array: Any) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


__all__ = ["CachedDocuments", "FreshDocuments", "Tokenising", "make_tokenising", "ram_bytes", "unit_name"]
