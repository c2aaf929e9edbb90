"""Plain text: every line that is not blank is a row of the one column ``text``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tpuworker.errors import DataError, Fault
from tpuworker.formats.base import Decoded, FileUnits, int64s
from tpuworker.formats.lines import scan
from tpuworker.formats.values import one_array
from tpuworker.storage import FileInfo, Storage, redact

COLUMN = "text"
_WHITE = " \t\r\n\v\f"


class TextFormat:
    """Lines of text, plain or compressed."""

    name: ClassVar[str] = "text"
    endings: ClassVar[tuple[str, ...]] = (".txt", ".text")

    def index(self, storage: Storage, file: FileInfo, wanted: Sequence[str]) -> FileUnits:  # noqa: ARG002 (one column)
        """Scan the newlines."""
        checksum = [0]
        spans = [(s.start, s.stop, s.rows) for s in scan(storage, file, checksum) if s.rows]
        starts = int64s([start for start, _, _ in spans])
        stops = int64s([stop for _, stop, _ in spans])
        return FileUnits(
            starts=starts,
            stops=stops,
            rows=int64s([rows for _, _, rows in spans]),
            sizes_bytes=stops - starts,
            columns=pa.schema([(COLUMN, pa.string())]),
            fingerprint=f"{checksum[0]:08x}",
            nulls=int64s([0] * len(spans)),
        )

    def read(self, storage: Storage, file: FileInfo, start: int, stop: int, columns: Any | None) -> Decoded:  # noqa: ARG002
        """Split the lines in [start, stop) of the plain content."""
        data = storage.read_plain(file, start, stop)
        if len(data) != stop - start:
            found = f"{start + len(data):,} bytes"
            raise DataError([Fault(redact(file.url), found, f"at least {stop:,}", "it changed: start anew")])
        lines = pc.split_pattern(pa.array([data], pa.large_binary()), b"\n").flatten()
        lines = lines.filter(pc.greater(pc.binary_length(pc.ascii_trim(_as_text(lines), _WHITE)), 0))
        array, bad = one_array(pa.chunked_array([lines.cast(pa.binary())]), pa.string())
        return Decoded(pa.table([pc.utf8_rtrim(array, "\r")], names=[COLUMN]), bad)


def _as_text(lines: Any) -> Any:
    """Return binary values under a string type without looking at them: ASCII kernels ask for the type only."""
    return pa.Array.from_buffers(pa.large_string(), len(lines), lines.buffers())
