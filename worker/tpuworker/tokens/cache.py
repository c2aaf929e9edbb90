"""The token cache: ids of whole units, made once, found again by all hosts and all later epochs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tpuworker.errors import WorkerError
from tpuworker.storage import NotFoundError, Storage, is_remote, redact, with_retries
from tpuworker.tokens.documents import Documents
from tpuworker.tokens.entry import DamagedEntryError, entry_bytes, read_entry

#: Writes after which the directory is measured again: other hosts fill it, too.
_MEASURE_EVERY = 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CacheCounters:
    """What a cache did so far; for metrics."""

    hits: int = 0
    misses: int = 0
    written: int = 0
    damaged: int = 0
    refused: int = 0
    size_bytes: int = 0


class _Place(Protocol):
    """Where entries lie."""

    def read(self, name: str) -> npt.NDArray[np.uint8] | None: ...

    def write(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def size_bytes(self) -> int: ...


class TokenCache:
    """Documents of units (row groups, spans of files), kept by what decides them.

    An entry appears whole or not at all, and two hosts that write the same one write the same bytes: no locks. An entry
    that is damaged is removed and made anew. What cannot be written (a full disk, a full cache, no rights) is warned of
    once and costs tokenising again; it never ends a job.

    Args:
        directory: Local directory (read by memory map), or gs://, s3:// and the like (read by one request).
        fingerprint: What decides documents of given records: ``Pipeline.fingerprint`` without the layout.
        limit_bytes: Most bytes in the directory, entries of other jobs included.
        storage: Access to remote directories.
    """

    def __init__(
        self, directory: str, fingerprint: Mapping[str, str], limit_bytes: int, storage: Storage | None = None
    ) -> None:
        self._place: _Place = (
            _RemotePlace(directory, storage or Storage()) if is_remote(directory) else _LocalPlace(Path(directory))
        )
        self._fingerprint = json.dumps(dict(fingerprint), sort_keys=True)
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("hits", "misses", "written", "damaged", "refused"), 0)
        self._size_bytes: int | None = None
        self._under_way_bytes = 0
        self._warned = False

    @property
    def counters(self) -> CacheCounters:
        """What was done so far."""
        with self._lock:
            return CacheCounters(**self._counts, size_bytes=self._size_bytes or 0)

    def documents(self, unit: str, make: Callable[[], Documents]) -> Documents:
        """Return the documents of a unit: found, or made and kept.

        Args:
            unit: What decides the unit's records: the file's fingerprint and the place in it, column and filter.
            make: Tokenises the whole unit.
        """
        found = self.find(unit)
        if found is not None:
            return found
        made = make()
        return (self._mapped(unit) or made) if self.keep(unit, made) else made

    def find(self, unit: str) -> Documents | None:
        """Return the documents of a unit, or None; every byte is checked."""
        name = self._name(unit)
        with self._tolerating("read"):
            content = self._place.read(name)
            if content is not None:
                try:
                    documents = read_entry(content)
                except DamagedEntryError as error:
                    _log.warning("token cache: entry %s is made anew: %s", name, error)
                    self._count("damaged")
                    self._place.remove(name)
                else:
                    self._count("hits")
                    return documents
        self._count("misses")
        return None

    def keep(self, unit: str, documents: Documents) -> bool:
        """Write the documents of a unit; say whether they are there now."""
        content = entry_bytes(documents)
        with self._tolerating("write"):
            if self._takes_room(len(content)):
                try:
                    self._place.write(self._name(unit), content)
                    self._count("written", len(content))
                finally:
                    with self._lock:
                        self._under_way_bytes -= len(content)
                return True
            self._warn(f"holds its limit of {self._limit_bytes / 2**30:.1f} GiB; the rest is tokenised each time")
        self._count("refused")
        return False

    def _mapped(self, unit: str) -> Documents | None:
        """Return what was just written from where it lies, so that it takes no RAM; None if that is far away."""
        if not isinstance(self._place, _LocalPlace):
            return None
        with self._tolerating("read"), contextlib.suppress(DamagedEntryError):
            content = self._place.read(self._name(unit))
            return None if content is None else read_entry(content)
        return None

    def _name(self, unit: str) -> str:
        digest = hashlib.sha256(json.dumps([self._fingerprint, unit]).encode()).hexdigest()[:40]
        return f"{digest[:2]}/{digest}.tokens"

    def _takes_room(self, num_bytes: int) -> bool:
        """Whether an entry fits the limit; if so, its room is taken until it is written, for others write meanwhile."""
        with self._lock:
            written = self._counts["written"]
            if self._size_bytes is None or written % _MEASURE_EVERY == 0:
                self._size_bytes = self._place.size_bytes()
            if self._size_bytes + self._under_way_bytes + num_bytes > self._limit_bytes:
                return False
            self._under_way_bytes += num_bytes
            return True

    def _count(self, name: str, num_bytes: int = 0) -> None:
        with self._lock:
            self._counts[name] += 1
            self._size_bytes = (self._size_bytes or 0) + num_bytes if num_bytes else self._size_bytes

    @contextlib.contextmanager
    def _tolerating(self, what: str) -> Any:
        try:
            yield
        except (OSError, WorkerError) as error:
            self._warn(f"could not {what} an entry: {error}")

    def _warn(self, sentence: str) -> None:
        with self._lock:
            is_first, self._warned = not self._warned, True
        if is_first:
            _log.warning("token cache %s", sentence)


class _LocalPlace:
    """A directory of this machine or one that is mounted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser()

    def read(self, name: str) -> npt.NDArray[np.uint8] | None:
        path = self._directory / name
        try:
            return np.memmap(path, np.uint8, mode="r")
        except FileNotFoundError:
            return None
        except ValueError:
            return np.zeros(0, np.uint8)  # an empty file cannot be mapped; it is a damaged entry

    def write(self, name: str, content: bytes) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)

    def size_bytes(self) -> int:
        total = 0
        for path in self._directory.glob("*/*.tokens"):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile by another host
                total += path.stat().st_size
        return total


class _RemotePlace:
    """A directory of object storage: one request reads an entry, one writes it whole."""

    def __init__(self, directory: str, storage: Storage) -> None:
        self._url = directory.rstrip("/")
        self._storage = storage

    def read(self, name: str) -> npt.NDArray[np.uint8] | None:
        system, path = self._storage.system(f"{self._url}/{name}")
        try:
            content: bytes = self._request(lambda: system.cat_file(path))
        except FileNotFoundError:
            return None
        return np.frombuffer(content, np.uint8)

    def write(self, name: str, content: bytes) -> None:
        system, path = self._storage.system(f"{self._url}/{name}")
        self._request(lambda: system.pipe_file(path, content))

    def remove(self, name: str) -> None:
        system, path = self._storage.system(f"{self._url}/{name}")
        with contextlib.suppress(FileNotFoundError):
            self._request(lambda: system.rm_file(path))

    def size_bytes(self) -> int:
        system, path = self._storage.system(self._url)
        try:
            found: int = self._request(lambda: system.du(path))
        except FileNotFoundError:
            return 0
        return found

    def _request(self, action: Callable[[], Any]) -> Any:
        try:
            return with_retries(action, url=self._url, policy=self._storage.policy)
        except NotFoundError as error:
            raise FileNotFoundError(redact(self._url)) from error
