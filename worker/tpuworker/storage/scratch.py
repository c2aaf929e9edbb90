"""Local disk space that ends with the process: decompressed copies and decoded units, least recently used first out."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Opened = TypeVar("Opened")


class Scratch:
    """A bounded directory of files that can be made again.

    A file is made once however many threads ask for it. What was opened stays readable after its eviction, since the
    file is unlinked, not truncated. Nothing is created on disk before the first file.

    Args:
        budget_bytes: Most bytes kept. Default: half of what is free on the file system of the temporary directory.
        parent: Where the directory is made. Default: the temporary directory (``TMPDIR``).
    """

    def __init__(self, budget_bytes: int | None = None, parent: Path | None = None) -> None:
        self._budget_bytes = budget_bytes
        self._parent = parent
        self._directory: Path | None = None
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """Bytes on disk now."""
        with self._lock:
            return sum(self._sizes.values())

    def use(self, key: str, make: Callable[[Path], None], opener: Callable[[Path], Opened]) -> Opened:
        """Return ``opener(path)`` of the file under ``key``, calling ``make(path)`` first if it is not there.

        Args:
            key: Name of the file, safe for a file system and unique for its content.
            make: Writes the file; what it raises reaches the caller and leaves nothing behind.
            opener: Opens the finished file.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            while True:
                with self._lock:
                    path = self._root() / key
                    known = key in self._sizes
                if not known:
                    self._make(path, make)
                try:
                    opened = opener(path)
                except FileNotFoundError:
                    with self._lock:  # evicted between the look and the opening: make it again
                        if known and self._sizes.pop(key, None) is None:
                            continue
                    raise
                with self._lock:
                    if path.exists():
                        self._sizes[key] = path.stat().st_size
                        self._sizes.move_to_end(key)
                        self._evict(keep=key)
                return opened

    @staticmethod
    def _make(path: Path, make: Callable[[Path], None]) -> None:
        part = path.with_name(path.name + ".part")
        try:
            make(part)
            part.rename(path)
        finally:
            part.unlink(missing_ok=True)

    def discard(self, key: str) -> None:
        """Remove a file that will not be asked for soon."""
        with self._lock:
            if self._sizes.pop(key, None) is not None:
                (self._root() / key).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            self._sizes.clear()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def _root(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="tpuworker-", dir=self._parent))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
            if self._budget_bytes is None:
                self._budget_bytes = shutil.disk_usage(self._directory).free // 2
        return self._directory

    def _evict(self, keep: str) -> None:
        budget = self._budget_bytes or 0
        while sum(self._sizes.values()) > budget and next(iter(self._sizes)) != keep:
            key, _ = self._sizes.popitem(last=False)
            (self._root() / key).unlink(missing_ok=True)
