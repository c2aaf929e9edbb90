"""One face for local files, gs://, s3://, hf:// and http(s)://: list, open, read; every request retried by rule."""

from __future__ import annotations

import glob
import hashlib
import io
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tpuworker.errors import Fault, InputError
from tpuworker.storage.compressed import codec_of, decompressed
from tpuworker.storage.redact import redact
from tpuworker.storage.retry import IncompleteBodyError, NotFoundError, RetryPolicy, with_retries
from tpuworker.storage.scratch import Scratch

Result = TypeVar("Result")

#: What one request of a sequential scan asks for.
READ_AHEAD_BYTES = 8 << 20
_HIDDEN = ("_", ".")
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class FileInfo:
    """One file or object as the listing has it.

    Attributes:
        url: Where it is: a local path or a URL with its protocol.
        size_bytes: Its size as stored (compressed, if it is).
        version: Entity tag or generation of an object; empty for local files, whose content is hashed instead.
    """

    url: str
    size_bytes: int
    version: str = ""

    @property
    def name(self) -> str:
        """Last part of the path, without a query."""
        return self.url.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]


def is_remote(url: str) -> bool:
    """Whether a URL names something that is not a file of this machine."""
    return "://" in url and not url.startswith("file://")


def _local(url: str) -> str:
    return url.removeprefix("file://")


class RangeFile(io.RawIOBase):
    """A seekable, read-only view of a remote object; each read is one ranged request, retried by itself."""

    def __init__(self, system: Any, path: str, file: FileInfo, policy: RetryPolicy) -> None:
        super().__init__()
        self._system, self._path, self._file, self._policy = system, path, file, policy
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte; returns the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the object; returns the bytes read, 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._file.size_bytes)
        wanted = stop - self._position
        if wanted <= 0:
            return 0
        data = with_retries(lambda: self._fetch(self._position, stop), url=self._file.url, policy=self._policy)
        view[:wanted] = data
        self._position = stop
        return wanted

    def _fetch(self, start: int, stop: int) -> bytes:
        data: bytes = self._system.cat_file(self._path, start=start, end=stop)
        if len(data) > stop - start and len(data) >= self._file.size_bytes:
            data = data[start:stop]  # a server that ignores the Range header sends the whole object
        if len(data) != stop - start:
            raise IncompleteBodyError(f"{len(data)} of {stop - start} bytes arrived")
        return data


@dataclass(frozen=True)
class Storage:
    """Access to files of all kinds under one retry policy.

    Attributes:
        policy: How failed requests are repeated.
        options: Arguments for the file system of a protocol, ``{"s3": {"endpoint_url": ...}}``.
        scratch: Where decompressed copies are kept.
    """

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch, compare=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def system(self, url: str) -> tuple[Any, str]:
        """Return the fsspec file system of a URL and the path it knows the object by."""
        import fsspec

        protocol = url.split("://", 1)[0]
        options: dict[str, Any] = {"use_listings_cache": False}
        if protocol in ("http", "https"):
            import aiohttp

            # A first byte may be slow, a silent connection may not block for ever.
            options["client_kwargs"] = {"timeout": aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=60)}
        options |= self.options.get(protocol, {})
        with self._lock:
            if protocol in ("gs", "gcs"):
                # The class that fsspec knows asks another service for the bucket's type first, over gRPC, and waits a
                # minute where it has no right or no way to it; this one is its base.
                from gcsfs.core import GCSFileSystem

                return GCSFileSystem(**options), GCSFileSystem._strip_protocol(url)
            system, path = fsspec.core.url_to_fs(url, **options)
        return system, path

    def resolve(self, patterns: Sequence[str]) -> tuple[FileInfo, ...]:
        """Return the files that the patterns name: patterns in the order written, the files of each by name.

        Names that begin with ``_`` or ``.`` are left out where a wildcard matched them, as Spark and Hive do. A file
        that several patterns match is kept once.

        Args:
            patterns: Paths or URLs, ``*``, ``?``, ``[...]`` and ``**`` allowed.

        Raises:
            InputError: Every pattern that matches nothing or a directory, with what lies beside it.
            UnavailableError: The storage kept failing.
        """
        found: dict[str, FileInfo] = {}
        faults: list[Fault] = []
        for pattern in patterns:
            matches, fault = self._match(pattern)
            faults += [fault] if fault else []
            for file in matches:
                found.setdefault(file.url, file)
        if faults:
            raise InputError(faults)
        return tuple(found.values())

    def _match(self, pattern: str) -> tuple[list[FileInfo], Fault | None]:
        entries = self._remote_entries(pattern) if is_remote(pattern) else _local_entries(_local(pattern))
        files = sorted((info for info, is_file in entries if is_file), key=lambda file: file.url)
        if files:
            return files, None
        place = redact(pattern)
        if entries:
            hint = f"write {place.rstrip('/')}/*.parquet, or whatever the files are called"
            return [], Fault(place, "a directory", "files", hint)
        return [], Fault(place, "no file", "at least one file", self._beside(pattern))

    def _remote_entries(self, pattern: str) -> list[tuple[FileInfo, bool]]:
        system, path = self.system(pattern)

        def listing() -> list[dict[str, Any]]:
            if glob.has_magic(pattern.split("?", 1)[0] if pattern.startswith("http") else pattern):
                return list(system.glob(path, detail=True).values())
            return [system.info(path)]

        try:
            details = with_retries(listing, url=pattern, policy=self.policy)
        except NotFoundError:
            return []
        entries = [(detail["name"], *_entry(system, detail)) for detail in details]
        return [(info, is_file) for name, info, is_file in entries if name == path or not info.name.startswith(_HIDDEN)]

    def _beside(self, pattern: str) -> str:
        parent = pattern.rsplit("/", 1)[0] if "/" in pattern else "."
        try:
            if is_remote(pattern):
                system, path = self.system(parent)
                names = [str(name).rsplit("/", 1)[-1] for name in system.ls(path, detail=False)]
            else:
                names = [entry.name for entry in Path(_local(parent) or "/").iterdir()]
        except Exception:  # this is only a hint: whatever is wrong with the parent was said by the fault
            return f"{redact(parent)} cannot be listed"
        shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return f"{redact(parent)} holds {shown}{more}" if names else f"{redact(parent)} is empty"

    def info(self, url: str) -> FileInfo:
        """Return one file as its listing has it.

        Raises:
            InputError: It is not there, or is a directory.
        """
        return self.resolve([url if is_remote(url) else glob.escape(url)])[0]

    def infos(self, urls: Sequence[str]) -> tuple[FileInfo, ...]:
        """Return files by their exact names in the order given, with one listing a directory instead of one a file.

        Raises:
            InputError: Those that are not there.
        """
        known: dict[str, FileInfo] = {}
        for parent in dict.fromkeys(url.rpartition("/")[0] for url in urls if is_remote(url)):
            if not parent.startswith(("http://", "https://")):
                known |= {file.url: file for file, is_file in self._listed(parent) if is_file}
        return tuple(known.get(url) or self.info(url) for url in urls)

    def _listed(self, parent: str) -> list[tuple[FileInfo, bool]]:
        system, path = self.system(parent)
        try:
            details = with_retries(lambda: system.ls(path, detail=True), url=parent, policy=self.policy)
        except NotFoundError:
            return []
        return [_entry(system, detail) for detail in details]

    def open(self, file: FileInfo, buffer_bytes: int = READ_AHEAD_BYTES) -> BinaryIO:
        """Return a seekable binary file.

        Args:
            file: What to open.
            buffer_bytes: What one request of a sequential scan asks for; larger reads ask for what they need.

        Raises:
            NotFoundError: It is gone.
        """
        if is_remote(file.url):
            system, path = self.system(file.url)
            return io.BufferedReader(RangeFile(system, path, file, self.policy), buffer_bytes)
        path = _local(file.url)
        return with_retries(lambda: Path(path).open("rb"), url=file.url, policy=self.policy)

    def read(self, file: FileInfo, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) of a file.

        Raises:
            DataError: The file is shorter than that now.
        """
        with self.open(file, buffer_bytes=max(1, min(stop - start, READ_AHEAD_BYTES))) as stream:
            stream.seek(start)
            return stream.read(stop - start)

    def plain_chunks(self, file: FileInfo) -> Iterator[bytes]:
        """Yield the content of a file in order, decompressed if its name says it is compressed.

        Raises:
            InputError: A compressed file that is cut off, damaged, or not compressed at all.
        """
        codec = codec_of(file.name)
        with self.open(file) as stream:
            if codec:
                yield from decompressed(stream, codec, redact(file.url))
                return
            while chunk := stream.read(READ_AHEAD_BYTES):
                yield chunk

    def read_plain(self, file: FileInfo, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) of a file's plain content.

        A compressed file is decompressed once to scratch, since it cannot be entered in the middle.
        """
        if codec_of(file.name) is None:
            return self.read(file, start, stop)

        def make(path: Path) -> None:
            with path.open("wb") as copy:
                copy.writelines(self.plain_chunks(file))

        with self.scratch.use(f"plain-{_key(file)}", make, lambda path: path.open("rb")) as stream:
            stream.seek(start)
            return stream.read(stop - start)

    def use_copy(self, file: FileInfo, use: Callable[[Path], Result]) -> Result:
        """Return what ``use`` makes of a copy on local disk, for libraries that open nothing else."""

        def make(path: Path) -> None:
            with self.open(file) as stream, path.open("wb") as copy:
                shutil.copyfileobj(stream, copy, READ_AHEAD_BYTES)

        return self.scratch.use(f"copy-{_key(file)}", make, use)

    def local_path(self, file: FileInfo) -> str | None:
        """Return the path of a file that this machine can map into memory, or None for a remote object."""
        return None if is_remote(file.url) else _local(file.url)


def _key(file: FileInfo) -> str:
    return hashlib.sha256(f"{file.url}\0{file.size_bytes}\0{file.version}".encode()).hexdigest()[:32]


def _local_entries(pattern: str) -> list[tuple[FileInfo, bool]]:
    exact = Path(pattern).exists() or not glob.has_magic(pattern)
    paths = [Path(pattern)] if exact else _globbed(pattern)
    return [(FileInfo(str(path), path.stat().st_size), path.is_file()) for path in paths if path.exists()]


def _globbed(pattern: str) -> list[Path]:
    matches = map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob refuses absolute patterns)
    return [path for path in matches if not path.name.startswith(_HIDDEN)]


def _entry(system: Any, detail: dict[str, Any]) -> tuple[FileInfo, bool]:
    """Return a file system's own description as ours, and whether it is a file."""
    version = str(detail.get("etag") or detail.get("ETag") or detail.get("generation") or _oid(detail) or "")
    info = FileInfo(system.unstrip_protocol(detail["name"]), int(detail.get("size") or 0), version.strip('"'))
    return info, detail["type"] != "directory"


def _oid(detail: dict[str, Any]) -> str:
    """Return the content hash of a hub file: that of its LFS object, else of its blob."""
    lfs = detail.get("lfs")
    return str((lfs or {}).get("sha256") or detail.get("blob_id") or "")
