"""How well the loader shuffles, beside files in random order with a buffer behind them: the table of docs/data.md."""

from __future__ import annotations

import numpy as np

from bench.report import table
from bench.scale.jobs import index_of, job_over
from tpuworker.data.order import Int64s
from tpuworker.data.plan import make_data_plan
from tpuworker.data.quality import ShuffleQuality, quality_of, shuffle_quality

ROWS, BATCH = 1_000_000, 256
BLOCKS = (100, 1_000, 10_000)
BUFFERS = (10_000, 100_000)
#: Lanes and buffer; the last one is what a person can do about a shuffle that does not please.
_CHOICES: tuple[tuple[int | str, int | str], ...] = (
    ("auto", 10_000),
    ("auto", 100_000),
    ("auto", "auto"),
    (256, "auto"),
)
_FILE_ROWS = 10_000
_BATCHES = 128
_HEAD = ["rows of a block", "order", "units", "label entropy", "displacement", "neighbours"]


def main() -> int:
    """Print the table."""
    print("\n".join(lines()))
    return 0


def lines() -> list[str]:
    """Return the table in Markdown, line by line; the same on every machine."""
    buffered = {rows: _buffered(rows) for rows in BUFFERS}
    found: list[list[str]] = []
    for block in BLOCKS:
        ends = np.arange(block, ROWS + block, block)
        index = index_of(ROWS, ROWS // block)
        for lanes, buffer in _CHOICES:
            job = job_over("x", global_batch_size=BATCH, num_hosts=1, buffer_size=buffer, lanes=lanes)
            plan = make_data_plan(job, index)
            name = f"{plan.num_lanes} lanes, buffer {plan.buffer_rows:,}" + (" (auto)" if buffer == "auto" else "")
            quality = shuffle_quality(plan, index, _BATCHES)
            assert quality is not None  # the rows fill thousands of batches
            found.append([f"{block:,}", name, *_cells(quality)])
        for rows, (places, positions) in buffered.items():
            quality = quality_of(places, positions, ends, np.array([0, ROWS]))
            found.append([f"{block:,}", f"files and a buffer of {rows:,}", *_cells(quality)])
    return table(_HEAD, found)


def _cells(quality: ShuffleQuality) -> list[str]:
    shares = quality.unit_diversity, quality.label_entropy, quality.displacement, quality.neighbour_correlation
    return [f"{share:.2f}" for share in shares]


def _buffered(buffer_rows: int) -> tuple[Int64s, Int64s]:
    """Return batches of files in random order behind a buffer, of which a random row leaves for each that enters."""
    rng = np.random.default_rng(0)
    files = rng.permutation(ROWS // _FILE_ROWS)[:, None] * _FILE_ROWS + np.arange(_FILE_ROWS)
    rows = files.reshape(-1).tolist()
    held, order = rows[:buffer_rows], []
    chosen = rng.integers(0, buffer_rows, ROWS - buffer_rows).tolist()
    for place, row in zip(chosen, rows[buffer_rows:], strict=True):
        order.append(held[place])
        held[place] = row
    order += rng.permutation(held).tolist()
    batches = np.linspace(0, ROWS // BATCH - 1, _BATCHES).astype(np.int64)
    positions = batches[:, None] * BATCH + np.arange(BATCH)
    return np.array(order)[positions], positions
