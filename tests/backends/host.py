"""One host of the conformance run: does everything a backend promises, and prints what it saw as one JSON line.

Run as ``python -m tests.backends.host BACKEND RANK NUM_HOSTS PORT``; the test reads the line of every host.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from tpuworker import backends
from tpuworker.identity import Identity

ROWS, LENGTH = 8, 6


def rows_of_host(rank: int, length: int = LENGTH) -> dict[str, Any]:
    first = rank * ROWS * length
    ids = np.arange(first, first + ROWS * length, dtype=np.int32).reshape(ROWS, length)
    return {"input_ids": ids, "labels": -ids}


def main(name: str, rank: int, num_hosts: int, port: int, sharding: str) -> None:
    backend = backends.load(name)
    identity = Identity(0, 1, rank, num_hosts, "127.0.0.1", port)
    backend.start(identity, platform="cpu", sharding=sharding)  # type: ignore[arg-type]
    seen: dict[str, Any] = {
        "name": backend.name,
        "devices": [backend.num_devices, backend.num_local_devices],
        "platform": backend.versions["platform"],
    }

    before = backend.num_compiles()
    for _ in range(3):
        batch = backend.put(rows_of_host(rank))
        backend.probe(batch)
    seen["compiles_of_one_shape"] = backend.num_compiles() - before
    seen["round_trip"] = all(
        np.array_equal(backend.local_rows(batch)[key], value) for key, value in rows_of_host(rank).items()
    )
    seen["dtype"] = str(backend.local_rows(batch)["input_ids"].dtype)
    backend.put({"input_ids": np.frombuffer(bytes(ROWS * 4), np.int32).reshape(ROWS, 1)})  # read-only memory

    before = backend.num_compiles()
    seen["gathered"] = [part.decode() for part in backend.exchange("names", f"host {rank}".encode() * (rank + 1))]
    seen["empty"] = [len(part) for part in backend.exchange("empty", b"")]
    big = bytes(range(256)) * 1000
    seen["broadcast"] = backend.broadcast("index", big if rank == 0 else None) == big
    seen["vote"] = backend.vote(10 + rank)()
    seen["compiles_of_exchange"] = backend.num_compiles() - before

    before = backend.num_compiles()
    backend.probe(backend.put(rows_of_host(rank, length=LENGTH + 1)))
    seen["compiles_of_new_shape"] = backend.num_compiles() - before
    seen["named"] = list(backend.compiled_since(before))

    backend.post("words", f"of host {rank}, \u00fc")
    backend.exchange("all have posted", b"")
    seen["posted"] = backend.posted("words")
    seen["not_posted"] = backend.posted("other words")

    ballot = backend.vote(rank)
    backend.probe(backend.put(rows_of_host(rank)))
    seen["late_ballot"] = ballot()
    backend.wait()
    if num_hosts > 1:
        try:
            backend.exchange(f"tag {rank}", b"x")
        except RuntimeError as error:
            seen["diverged"] = str(error)
    print("SEEN " + json.dumps(seen), flush=True)
    backend.stop()
    backend.post("words after parting", "x")
    assert backend.posted("words after parting") is None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
