"""Records from here and there in the data: what is tried on an engine, judged, or shown before the first step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpuworker.data.counters import Counters
from tpuworker.data.index import Index
from tpuworker.data.rows import UnitReader
from tpuworker.data.sequence import RowRefs
from tpuworker.spec.data import DataSpec
from tpuworker.storage import Storage
from tpuworker.tasks.conversation import check_learnable

#: Conversations of a source that are judged, and the units they are taken from: sorted data differs from end to end.
_JUDGED_ROWS = 1000
_JUDGED_UNITS = 4
#: Bytes that may be decoded for it: units are decoded whole, and a shard of a hub dataset can be one.
_JUDGED_BYTES = 256 << 20


def some_records(index: Index, source_number: int, most: int, num_units: int = 1) -> Any:
    """Return records of a source as pyarrow decodes them: the first ones of units that lie evenly in it.

    Args:
        index: The index.
        source_number: Which source.
        most: Most records, shared evenly by the units.
        num_units: Units to take them from, if the source has as many; the first is among them.

    Returns:
        ``pyarrow.Array`` of the source's column, null for records the decoder could not use.

    Raises:
        DataError: A unit cannot be read.
    """
    source = index.sources[source_number]
    units = np.unique(np.linspace(0, source.num_units - 1, num_units).astype(np.int64))
    counts = np.minimum(-(-most // len(units)), source.unit_rows[units])
    refs = RowRefs(
        np.full(int(counts.sum()), source_number, np.int64),
        np.repeat(units, counts),
        np.concatenate([np.arange(count) for count in counts.tolist()]),
        open_units=tuple((source_number, unit) for unit in units.tolist()),
    )
    reader = UnitReader(index, Storage(), Counters())
    try:
        reader.expect(refs.open_units)
        return reader.gather(refs).column[:most]
    finally:
        reader.close()


def judge_learnable(data: DataSpec, index: Index, pipeline: Any) -> None:
    """Refuse conversations too many of which have no token to learn: their loss would be 0, and nobody would know why.

    Some rows of each source are tokenised; other tasks learn every token, so nothing is read for them.

    Args:
        data: The job's data section.
        index: Its index.
        pipeline: Has ``encode``.

    Raises:
        DataError: More than ``conversation.most_unlearnable_fraction`` of the rows of a source.
    """
    if data.task != "conversation" or data.conversation.loss_on == "all":
        return
    for source in index.sources:
        fitting = int(_JUDGED_BYTES / max(1.0, float(source.unit_bytes.mean())))
        column = some_records(index, source.number, _JUDGED_ROWS, min(_JUDGED_UNITS, max(1, fitting)))
        check_learnable(pipeline.encode(column), data.conversation, source.name)
