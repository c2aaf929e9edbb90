"""The data cursor in ``checkpoint.dir``: written whole or not at all, the last good one kept, local or in a bucket."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from tpuworker.data.cursor import Cursor
from tpuworker.errors import DataError, Fault
from tpuworker.storage import Storage

_ACCEPTED = "accepted.json"
_NAME = re.compile(r"cursor-(\d{10})\.json")


class CursorStore:
    """Cursors as ``DIR/cursor-<step>.json``.

    Args:
        directory: Local path or URL.
        keep: Newest ones kept.
        storage: How the place is reached.
    """

    def __init__(self, directory: str, keep: int = 2, storage: Storage | None = None) -> None:
        self.directory = directory.rstrip("/")
        self._keep = keep
        self._system, self._root = (storage or Storage()).system(self.directory)

    def save(self, cursor: Cursor) -> str:
        """Write a cursor and return where it lies; older ones beyond ``keep`` are removed afterwards.

        Raises:
            DataError: The directory cannot be written.
        """
        name = f"cursor-{cursor.step:010d}.json"
        path, part = f"{self._root}/{name}", f"{self._root}/.{name}.part"
        try:
            self._system.makedirs(self._root, exist_ok=True)
            if _is_local(self._system):
                self._system.pipe_file(part, cursor.to_json().encode())
                self._system.mv(part, path)  # a rename: readers see the old file or the new one
            else:
                self._system.pipe_file(path, cursor.to_json().encode())  # one put of a bucket is whole or absent
        except OSError as error:
            fault = Fault("spec.checkpoint.dir", f"{self.directory}: {error}", "a directory that can be written")
            raise DataError([fault]) from error
        for old in sorted(self._steps(), reverse=True)[self._keep :]:
            with contextlib.suppress(OSError):
                self._system.rm_file(f"{self._root}/cursor-{old:010d}.json")
        return f"{self.directory}/{name}"

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of a file system, which other hosts may or may not have."""
        return _is_local(self._system)

    def note_acceptance(self, submission: str, data: str) -> None:
        """Keep what data a submission has accepted, in the place of what an earlier one did.

        Raises:
            DataError: The directory cannot be written.
        """
        content = json.dumps({"submission": submission, "data": data}, sort_keys=True).encode()
        try:
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(f"{self._root}/{_ACCEPTED}", content)
        except OSError as error:
            fault = Fault("spec.checkpoint.dir", f"{self.directory}: {error}", "a directory that can be written")
            raise DataError([fault]) from error

    def accepted_by(self, submission: str) -> str | None:
        """Return what data a submission has accepted; None if it has accepted none yet."""
        self._system.invalidate_cache()
        try:
            content = json.loads(self._read(f"{self._root}/{_ACCEPTED}"))
            return str(content["data"]) if content["submission"] == submission else None
        except (OSError, ValueError, TypeError, KeyError):  # none, or one that was cut off while it was written
            return None

    def leave_sign(self, sign: str) -> None:
        """Write an empty file, so that a place that cannot be written is found out before a step is trained.

        Raises:
            DataError: The directory cannot be written.
        """
        try:
            self._system.makedirs(self._root, exist_ok=True)
            self._system.pipe_file(f"{self._root}/{sign}", b"")
        except OSError as error:
            fault = Fault("spec.checkpoint.dir", f"{self.directory}: {error}", "a directory that can be written")
            raise DataError([fault]) from error

    def sees_sign(self, sign: str) -> bool:
        """Return whether a sign lies there; a directory that cannot be asked is none that is shared."""
        with contextlib.suppress(OSError):
            self._system.invalidate_cache()
            return bool(self._system.exists(f"{self._root}/{sign}"))
        return False

    def remove_sign(self, sign: str) -> None:
        """Remove a sign, if it may be removed."""
        with contextlib.suppress(OSError):
            self._system.rm_file(f"{self._root}/{sign}")

    def load(self) -> tuple[Cursor | None, tuple[str, ...]]:
        """Return the newest cursor that can be read, and a sentence for each newer one that cannot.

        Raises:
            DataError: There are cursors, and none can be read.
        """
        damaged: list[str] = []
        for step in sorted(self._steps(), reverse=True):
            name = f"cursor-{step:010d}.json"
            try:
                return Cursor.from_json(self._read(f"{self._root}/{name}")), tuple(damaged)
            except (DataError, OSError, UnicodeDecodeError) as error:
                damaged.append(f"{self.directory}/{name} is damaged and left out: {error}")
        if damaged:
            hint = "remove them to begin anew, or restore one"
            raise DataError([Fault(self.directory, "; ".join(damaged), "a cursor that can be read", hint)])
        return None, ()

    def _read(self, path: str) -> str:
        return bytes(self._system.cat_file(path)).decode()

    def _steps(self) -> Iterator[int]:
        self._system.invalidate_cache()
        try:
            names: list[Any] = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return
        for name in names:
            if match := _NAME.fullmatch(str(name).rpartition("/")[2]):
                yield int(match[1])


def _is_local(system: Any) -> bool:
    return "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
