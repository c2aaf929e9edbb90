"""The fresh process: opens one contender and measures one thing; what it finds goes to a pipe as JSON lines."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.contenders import CONTENDERS
from bench.contenders.base import Arrays, Stream
from bench.corpus.synthetic import number_of
from bench.task import Task
from bench.tree import cpu_seconds, pss_bytes

#: The window of a speed run begins after this share of an epoch at the latest.
_MOST_WARM_UP_FRACTION = 0.1
#: Times that the consumer of a stall run is slower than the loader.
THINK_FACTOR = 1.2
#: Batches after a state that a resumed run must repeat.
CHECKED_BATCHES = 4


class _Channel:
    """Sends what happened, with the time since the process was started."""

    def __init__(self, descriptor: int, started: float) -> None:
        self._out = os.fdopen(descriptor, "w", buffering=1)
        self._started = started

    def send(self, event: str, **facts: object) -> None:
        """Write one line."""
        self._out.write(json.dumps({"event": event, "seconds": time.time() - self._started, **facts}) + "\n")


def useful_tokens(arrays: Arrays, length: int, layout: str) -> int:
    """Return the tokens of a batch that stand for text: no pads, and of raw lengths only what a row would keep."""
    if "lengths" in arrays:
        lengths = arrays["lengths"]
        return int(np.minimum(lengths, length).sum() if layout == "pad" else lengths.sum())
    if "attention_mask" in arrays:
        return int(np.count_nonzero(arrays["attention_mask"]))
    if "segment_ids" in arrays:
        return int(np.count_nonzero(arrays["segment_ids"]))
    return int(arrays["input_ids"].size)


def slots(arrays: Arrays) -> int:
    """Return the positions of a batch."""
    return int(arrays["input_ids"].size if "input_ids" in arrays else arrays["lengths"].sum())


def touch(arrays: Arrays) -> int:
    """Read every byte, as a transfer to a device would."""
    total = 0
    for array in arrays.values():
        words = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = len(words) // 8 * 8
        total ^= int(np.bitwise_xor.reduce(words[:whole].view(np.int64), initial=0))
    return total


def digest(arrays: Arrays) -> str:
    """Return a digest of a batch's ids."""
    return hashlib.sha256(np.ascontiguousarray(arrays["input_ids"], np.int32).tobytes()).hexdigest()[:16]


def _speed(task: Task, stream: Stream, channel: _Channel) -> None:
    batches = iter(stream)
    touch(next(batches))
    channel.send("first")
    _warm_up(task, stream, batches)
    channel.send("window")
    tokens = positions = count = 0
    cpu_before, before = cpu_seconds(os.getpid()), time.perf_counter()
    for arrays in _while(batches, before + task.window_seconds, 10**9):
        touch(arrays)
        tokens += useful_tokens(arrays, task.length, task.layout)
        positions += slots(arrays)
        count += 1
    wall = time.perf_counter() - before
    cpu = cpu_seconds(os.getpid()) - cpu_before
    channel.send("speed", wall=wall, cpu=cpu, tokens=tokens, slots=positions, batches=count)


def _warm_up(task: Task, stream: Stream, batches: Iterator[Arrays]) -> float:
    """Take batches as fast as they come and return the seconds that one took."""
    before = time.perf_counter()
    most = max(1, int((stream.num_batches or 10**9) * _MOST_WARM_UP_FRACTION))
    count = sum(1 for _ in _while(batches, before + task.warm_up_seconds, most))
    return (time.perf_counter() - before) / max(1, count)


def _while(batches: Iterator[Arrays], deadline: float, most: int) -> Iterator[Arrays]:
    for arrays in islice(batches, most):
        yield arrays
        if time.perf_counter() >= deadline:
            return


def _stall(task: Task, stream: Stream, channel: _Channel) -> None:
    """Wait for batches as a consumer does that is a little slower than this loader in this very process."""
    batches = iter(stream)
    next(batches)
    _warm_up(task, stream, batches)
    think_seconds = THINK_FACTOR * _warm_up(task, stream, batches)
    waited, count, before = 0.0, 0, time.perf_counter()
    while time.perf_counter() < before + task.window_seconds:
        time.sleep(think_seconds)
        asked = time.perf_counter()
        arrays = next(batches, None)
        waited += time.perf_counter() - asked
        if arrays is None:
            break
        count += 1
    channel.send("stall", wall=time.perf_counter() - before, waited=waited, batches=count)


def _save(task: Task, stream: Stream, channel: _Channel) -> None:
    """Take states at 10, 50 and 90 % of an epoch, and the digests of the batches that follow each."""
    places = {stream.num_batches * percent // 100: percent for percent in (10, 50, 90)}
    following: dict[int, list[str]] = {}
    for count, arrays in enumerate(stream, 1):
        for place, percent in places.items():
            if place < count <= place + CHECKED_BATCHES:
                following.setdefault(percent, []).append(digest(arrays))
        if count in places:
            Path(task.states, f"{places[count]}.pickle").write_bytes(pickle.dumps(stream.state()))
        if count >= max(places) + CHECKED_BATCHES:
            break
    channel.send("saved", following={str(percent): digests for percent, digests in following.items()})


def _resume(_task: Task, stream: Stream, channel: _Channel) -> None:
    before = time.perf_counter()
    batches = iter(stream)
    first = next(batches)
    wall = time.perf_counter() - before
    digests = [digest(first), *(digest(arrays) for arrays in islice(batches, CHECKED_BATCHES - 1))]
    channel.send("resumed", wall=wall, digests=digests)


def _memory(_task: Task, stream: Stream, channel: _Channel) -> None:
    """Say when each epoch is over, and the memory of this process and its workers then."""
    for count, arrays in enumerate(stream, 1):
        touch(arrays)
        if count % stream.num_batches == 0:
            channel.send("epoch", number=count // stream.num_batches, num_bytes=pss_bytes(os.getpid()))
    channel.send("done")


def _rows(task: Task, stream: Stream, channel: _Channel) -> None:
    """Report which rows each batch holds; take a state at a position."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(task.tokenizer)
    steps: list[list[int]] = []
    for arrays in islice(stream, task.most_batches):
        lengths = arrays["attention_mask"].sum(axis=1)
        rows = [ids[:length].tolist() for ids, length in zip(arrays["input_ids"], lengths, strict=True) if length]
        steps.append([number_of(text) for text in tokenizer.decode_batch(rows)])
        if task.position and len(steps) == task.position:
            Path(task.states, f"rank-{task.rank}.pickle").write_bytes(pickle.dumps(stream.state()))
    channel.send("rows", steps=steps)


_MEASURES: dict[str, Callable[[Task, Stream, _Channel], None]] = {
    "speed": _speed,
    "stall": _stall,
    "save": _save,
    "resume": _resume,
    "memory": _memory,
    "rows": _rows,
}


def main(arguments: list[str]) -> int:
    """Run one task: TASK as JSON, the pipe's descriptor, the time of the start."""
    task = Task.from_json(arguments[0])
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)
    channel = _Channel(int(arguments[1]), float(arguments[2]))
    module: Any = importlib.import_module(f"bench.contenders.{CONTENDERS[task.contender].module}")
    if hasattr(module, "import_all"):
        module.import_all(task)
    channel.send("imported")
    state = pickle.loads(Path(task.restore_from).read_bytes()) if task.restore_from else None  # our own file
    before = time.perf_counter()
    stream: Stream = module.open_stream(task, state)
    channel.send("opened", wall=time.perf_counter() - before)
    _MEASURES[task.measure](task, stream, channel)
    if hasattr(stream, "close"):  # one that is joined with other hosts parts from them
        stream.close()
    channel.send("end")
    # What was measured is sent. A contender whose threads or workers would not end must not hold up the others.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
