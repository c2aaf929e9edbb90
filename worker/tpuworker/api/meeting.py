"""How the ranks of a program talk, where its runtime has joined them: one of them lists, and all prove equal data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tpuworker.api.world import Library, World
from tpuworker.backends.rendezvous import frame, padded_length, unframe
from tpuworker.data.index import Index
from tpuworker.data.job import Exchange
from tpuworker.errors import DataError, Fault, FaultsError, InputError, WorkerError


@dataclass(frozen=True)
class Meeting:
    """The ranks of a world that can talk; every one of them has to call the same things in the same order.

    Attributes:
        world: Which of them this is.
        exchange: How they talk.
    """

    world: World
    exchange: Exchange

    def index(self, build: Callable[[], Index]) -> Index:
        """Return the index that rank 0 builds.

        Raises:
            InputError: It failed on rank 0; on every rank.
        """
        mine, failure = b"", None
        if self.world.rank == 0:
            try:
                mine = b"\1" + build().to_bytes()
            except WorkerError as error:
                failure, mine = error, b"\0" + str(error).encode()
        told = self.exchange("index", mine)[0]
        if failure is not None:
            raise failure
        if told[:1] == b"\1":
            return Index.from_bytes(told[1:])
        raise InputError([Fault("rank 0", told[1:].decode(), "an index of the data")])

    def agree(self, what: Mapping[str, str], failure: FaultsError | None = None) -> None:
        """Go on only if every rank has the same.

        Args:
            what: Name to short text: fingerprints of rows, tokenizer and layout.
            failure: Why this rank has none.

        Raises:
            DataError: Ranks that differ or have failed, by number, with every difference.
            FaultsError: ``failure`` itself.
        """
        told = self.exchange("agree", json.dumps([dict(what), str(failure or "")]).encode())
        if failure is not None:
            raise failure
        faults = []
        for rank, payload in enumerate(told):
            theirs, error = json.loads(payload)
            if error:
                faults.append(Fault(f"rank {rank}", error, "a loader on every rank"))
                continue
            faults += [
                Fault(f"rank {rank}: {name}", theirs.get(name, "nothing"), f"{what.get(name, 'nothing')}, as here")
                for name in dict.fromkeys([*what, *theirs])
                if theirs.get(name) != what.get(name)
            ]
        if faults:
            raise DataError(faults)


def shared_index(meeting: Meeting | None, build: Callable[[], Index]) -> Index:
    """Return the index of named data: listings, footers and line ends are read once for all ranks that can talk."""
    return build() if meeting is None else meeting.index(build)


def meeting_of(world: World, library: Library) -> Meeting | None:
    """Return the meeting of a world whose processes torch.distributed (gloo) or JAX has joined; None without.

    Args:
        world: Which reader of how many this is. One that the runtime does not say likewise has no meeting: ranks that
            were said by the caller may belong to anything.
        library: Which runtime to ask.
    """
    if world.world_size == 1:
        return None
    exchange = _torch(world) if library == "torch" else _jax(world)
    return None if exchange is None else Meeting(world, exchange)


def _torch(world: World) -> Exchange | None:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or "gloo" not in dist.get_backend():
        return None
    if world != World(dist.get_world_size(), dist.get_rank()):
        return None

    def exchange(tag: str, payload: bytes) -> list[bytes]:
        told: list[bytes] = [b""] * world.world_size
        dist.all_gather_object(told, frame(tag, payload))
        return [unframe(tag, framed, rank) for rank, framed in enumerate(told)]

    return exchange


def _jax(world: World) -> Exchange | None:
    if "jax" not in sys.modules:
        return None
    import jax

    if world != World(jax.process_count(), jax.process_index()):
        return None
    from jax.experimental import multihost_utils

    def exchange(tag: str, payload: bytes) -> list[bytes]:
        framed = frame(tag, payload)
        longest = int(np.max(multihost_utils.process_allgather(np.array([len(framed)], np.int32))))
        block = np.zeros(padded_length(longest), np.uint8)
        block[: len(framed)] = np.frombuffer(framed, np.uint8)
        gathered = np.asarray(multihost_utils.process_allgather(block)).reshape(world.world_size, -1)
        return [unframe(tag, row.tobytes(), rank) for rank, row in enumerate(gathered)]

    return exchange
