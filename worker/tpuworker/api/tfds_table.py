"""A prepared TFDS dataset as rows by number: array_record files, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tpuworker.errors import Fault, InputError
from tpuworker.storage import in_one_line


class TfdsTable:
    """Random access to a split; TFDS parses examples in Python, so its rows cost more than those of other sources.

    Args:
        name: Dataset name, with ``/config`` and ``:version`` if wanted.
        split: Split, TFDS slices (``train[:10%]``) included.
        data_dir: Where it was prepared. Default: where TFDS looks.

    Raises:
        InputError: TFDS is not installed, no such dataset or split there, or files that only TensorFlow reads.
    """

    def __init__(self, name: str, split: str, data_dir: str | None = None) -> None:
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            found, hint = "no tensorflow_datasets in this environment", "install the extra: tpulaunch[tfds]"
            raise InputError([Fault("name", found, f"it, to read {name!r}", hint)]) from error
        try:
            builder = tfds.builder(name, data_dir=data_dir)
            self._source: Any = builder.as_data_source(split=split)
        except (
            Exception
        ) as error:  # TFDS raises its own errors, NotImplementedError, ValueError and AttributeError here
            found = f"{name!r}, split {split!r}: {in_one_line(error)[:300]}"
            wanted = "a dataset that is prepared with file_format='array_record'"
            where = data_dir or "TFDS_DATA_DIR or ~/tensorflow_datasets"
            raise InputError([Fault("name", found, wanted, f"looked for in {where}")]) from error
        self._names = list(builder.info.features)

    @property
    def column_names(self) -> list[str]:
        """Names of the features."""
        return self._names

    def __len__(self) -> int:
        return len(self._source)

    def rows(self, numbers: range | Sequence[int]) -> Any:
        """Return a ``pyarrow.Table`` of some rows; tensors of one dimension are lists."""
        examples = self._source.__getitems__(list(numbers))
        return pa.table({name: pa.array([_plain(example[name]) for example in examples]) for name in self._names})


def is_prepared(name: str, data_dir: str | None) -> bool:
    """Whether TFDS finds a prepared dataset of this name."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        return False
    try:
        return bool(tfds.builder(name, data_dir=data_dir).info.splits)
    except Exception:  # any failure to open it means that it is not there to be read
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim != 1 else value
    return value.item() if isinstance(value, np.generic) else value
