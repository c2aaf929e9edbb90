"""A corpus larger than RAM, planned and streamed: links to one file of real text, read and decoded under every name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.corpus.tokenizers import END_TOKEN
from bench.machine import resident_bytes
from bench.scale import Point, point
from bench.scale.jobs import job_over
from bench.summary import slope

if TYPE_CHECKING:
    from tpuworker.data.loader import Loader

PANEL = "Gigabytes streamed in four epochs"
_GIGABYTES = (1, 5, 20)
#: Of a file; a row group is as large as a unit that is kept in RAM may be.
FILE_BYTES = 100_000_000
_ROW_GROUP_BYTES = 4_000_000
_MEAN_ROW_BYTES = 600
_LENGTH, _BATCH = 512, 256
_EPOCHS = 4
_CHILD = "import sys; from bench.scale.memory import child; child(*sys.argv[1:])"


@dataclass(frozen=True)
class Streamed:
    """What a fresh process found.

    Attributes:
        num_files: Files of the corpus.
        num_rows: Its rows.
        decoded_bytes: Decoded text of an epoch.
        index_seconds: Time of the index, footers of all files included.
        plan_seconds: Time of the plan.
        steps: Steps that were delivered.
        seconds: Time of these.
        resident_bytes: Mean resident memory over the second half of each of as many equal parts as there are epochs.
    """

    num_files: int
    num_rows: int
    decoded_bytes: int
    index_seconds: float
    plan_seconds: float
    steps: int
    seconds: float
    resident_bytes: tuple[float, ...]

    @property
    def growth_bytes_per_epoch(self) -> float:
        """Slope of a straight line through the parts after the first, which fills pools and buffers."""
        return slope(self.resident_bytes[1:])


def measure() -> Iterator[Point]:
    """Yield seconds of the plan, and rate and growth of memory of four epochs, for each size."""
    for gigabytes in _GIGABYTES:
        found = measured(gigabytes, epochs=_EPOCHS)
        yield point(PANEL, "index and plan: seconds", gigabytes, found.index_seconds + found.plan_seconds)
        yield point(PANEL, "text: MB/s", gigabytes, _EPOCHS * found.decoded_bytes / 1e6 / found.seconds)
        yield point(PANEL, "resident: MB", gigabytes, found.resident_bytes[-1] / 1e6)
        yield point(PANEL, "growth: MB an epoch", gigabytes, found.growth_bytes_per_epoch / 1e6)


def measured(gigabytes: float, *, epochs: int, steps: int | None = None) -> Streamed:
    """Make a corpus, stream it in a fresh process, and return what that found.

    Args:
        gigabytes: Size of the corpus; it takes 100 MB of disk at most.
        epochs: How often it is passed through; 0 only plans it.
        steps: Stop after so many, and take as many parts of these as there are epochs. Default: all.
    """
    with tempfile.TemporaryDirectory() as directory:
        num_files = max(1, round(gigabytes * 1e9 / FILE_BYTES))
        make(Path(directory), num_files, min(FILE_BYTES, round(gigabytes * 1e9)))
        command = [sys.executable, "-c", _CHILD, directory, str(epochs), str(steps or 0)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    content = json.loads(done.stdout)
    return Streamed(**{**content, "resident_bytes": tuple(content["resident_bytes"])})


def make(directory: Path, num_files: int, file_bytes: int) -> None:
    """Write one parquet file of made-up words and link it under so many names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlu  cm", np.uint8)[rng.integers(0, 16, file_bytes, np.uint8)]
    lengths = rng.integers(_MEAN_ROW_BYTES // 2, _MEAN_ROW_BYTES * 3 // 2, 2 * file_bytes // _MEAN_ROW_BYTES)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    offsets = offsets[offsets < file_bytes].astype(np.int32)
    texts = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(letters))
    # Without compression or dictionary: each name costs the reading and decoding of all its bytes.
    original = directory / "part-00000.parquet"
    rows = _ROW_GROUP_BYTES // _MEAN_ROW_BYTES
    pq.write_table(pa.table({"text": texts}), original, row_group_size=rows, compression="none", use_dictionary=False)
    for number in range(1, num_files):
        os.link(original, directory / f"part-{number:05d}.parquet")
    _write_tokenizer(directory / "tokenizer.json")


def child(directory: str, epochs: str, steps: str) -> None:
    """Plan and stream the corpus of a directory, and print what it took."""
    import pyarrow.parquet  # noqa: F401  # its import is no part of the index

    from tpuworker.data.indexing import build_index
    from tpuworker.data.loader import Loader
    from tpuworker.data.plan import make_data_plan
    from tpuworker.identity import Identity
    from tpuworker.pipeline import make_pipeline
    from tpuworker.tokens.resolve import load_tokenizer

    job = job_over(
        f"{directory}/*.parquet",
        global_batch_size=_BATCH,
        num_hosts=1,
        tokenizer=f"{directory}/tokenizer.json",
        max_length=_LENGTH,
        epochs=max(1, int(epochs)),
        steps=int(steps) or None,
    )
    started = time.perf_counter()
    index = build_index(job)
    indexed = time.perf_counter()
    make_data_plan(job, index)
    planned = time.perf_counter()
    resident: list[int] = []
    if int(epochs):
        pipeline = make_pipeline(job.spec.data, load_tokenizer(job.spec.data), _Bytes(), _BATCH)
        with Loader(job, Identity(0, 1, 0, 1, coordinator="localhost"), index, pipeline) as loader:
            for batch in loader:
                if not batch.step:
                    _fill(loader)  # as while the first step compiles; what is under way is never more afterwards
                resident.append(resident_bytes())
    parts = np.array_split(np.array(resident, np.float64), max(1, int(epochs)))
    found = Streamed(
        num_files=sum(len(source.files) for source in index.sources),
        num_rows=index.num_rows,
        decoded_bytes=sum(int(source.unit_bytes.sum()) for source in index.sources),
        index_seconds=indexed - started,
        plan_seconds=planned - indexed,
        steps=len(resident),
        seconds=time.perf_counter() - planned,
        resident_bytes=tuple(float(part[len(part) // 2 :].mean()) for part in parts if len(part)),
    )
    print(json.dumps(asdict(found)))


def _fill(loader: Loader) -> None:
    """Wait until the queue is full and the threads have nothing to do."""
    busy = -1.0
    while busy != (busy := sum(stage.busy_seconds for stage in loader.stats().stages.values())):
        time.sleep(1)


class _Bytes:
    """An engine whose ids are bytes: what it leaves of the machine is what the loader needs."""

    name, version = "bytes", "1"

    def encode(self, texts: Any) -> Any:
        import pyarrow as pa

        from tpuworker.tokens.engine import Encoded

        array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
        array = array.cast(pa.large_string())
        _, offsets, values = array.buffers()
        places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        letters = np.frombuffer(values, np.uint8)[places[0] : places[-1]]
        return Encoded(letters.astype(np.int32), places - places[0])


def _write_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_TOKEN])
    tokenizer.save(str(path))
