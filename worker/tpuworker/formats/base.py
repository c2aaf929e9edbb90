"""What a format gives: the units of a file with their sizes, and the rows of one unit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tpuworker.storage import FileInfo, Storage

Int64s = npt.NDArray[np.int64]
_SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True)
class BadRecord:
    """A row that cannot be used as it stands.

    Attributes:
        row: Its number inside the unit, from 0.
        reason: Why, in words that are the same for all rows of the kind, so that they can be counted.
        detail: What was found in this row.
    """

    row: int
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class FileUnits:
    """What one pass over a file, or over its footer, tells.

    A unit is what is decoded at once: a parquet row group, an Arrow record batch, about 8 MiB of lines.

    Attributes:
        starts: Where each unit begins, int64 [units]; an ordinal or a byte, as the format likes.
        stops: Where it ends, int64 [units].
        rows: Rows in it, int64 [units].
        sizes_bytes: Decoded size of the wanted column, or the best figure there is, int64 [units].
        columns: Arrow schema of the whole file; a column of type null is one whose type the file does not tell.
        fingerprint: Hexadecimal digest that changes with the content.
        nulls: Null values of the wanted column, int64 [units]; -1 where the file does not say.
        format_note: What a reader must know to open the units, kept with the index.
    """

    starts: Int64s
    stops: Int64s
    rows: Int64s
    sizes_bytes: Int64s
    columns: Any
    fingerprint: str
    nulls: Int64s
    format_note: str = ""

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self.rows.sum())


@dataclass(frozen=True)
class Decoded:
    """The rows of one unit.

    Attributes:
        table: ``pyarrow.Table`` with exactly the unit's rows; a bad row is null in every column.
        bad: The bad rows, ascending.
    """

    table: Any
    bad: tuple[BadRecord, ...] = ()


class UnitFormat(Protocol):
    """Reads units that an index knows. An instance may keep caches; it is used by several threads at once."""

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:
        """Return the rows of one unit.

        Args:
            storage: How bytes are read.
            file: The file.
            start: As the index has it.
            stop: As the index has it.
            columns: ``pyarrow.Schema`` of the columns to read, cast to its types; None reads all as they are.

        Raises:
            DataError: The file changed since it was indexed.
        """
        ...


class Format(UnitFormat, Protocol):
    """One way of storing rows in files."""

    name: ClassVar[str]
    """The word the spec uses."""
    endings: ClassVar[tuple[str, ...]]
    """How names of such files end, compression aside."""

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:
        """Return the units of a file.

        Args:
            storage: How bytes are read.
            file: The file.
            wanted: Columns of which one will be read, the first that exists; their size is measured.

        Raises:
            InputError: The file is not what its name says, or is cut off.
        """
        ...


def int64s(values: Sequence[int]) -> Int64s:
    """Return numbers as an int64 array, also when there are none."""
    return np.asarray(values, dtype=np.int64)


def sampled_digest(storage: Storage, file: FileInfo) -> str:
    """Return a digest of size, version, first and last 64 KiB: for formats whose content is not read through."""
    digest = hashlib.sha256(f"{file.size_bytes}\0{file.version}\0".encode())
    digest.update(storage.read(file, 0, min(_SAMPLE_BYTES, file.size_bytes)))
    digest.update(storage.read(file, max(0, file.size_bytes - _SAMPLE_BYTES), file.size_bytes))
    return digest.hexdigest()[:16]
