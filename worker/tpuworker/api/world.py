"""Which of how many readers this process is: said by the caller, the runtime, or the environment; never guessed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from tpuworker.errors import Fault, IdentityError
from tpuworker.spec import wire

Library = Literal["torch", "jax"]
_PASS_BOTH = "pass world_size and rank"


@dataclass(frozen=True)
class World:
    """One reader of several that share the data.

    Attributes:
        world_size: Readers.
        rank: Which of them this is, 0 to world_size-1.

    Examples:
        >>> World(world_size=4, rank=1)
        World(world_size=4, rank=1)
    """

    world_size: int
    rank: int

    @property
    def num_hosts(self) -> int:
        """``world_size`` as the engine calls it."""
        return self.world_size

    @property
    def host_rank(self) -> int:
        """``rank`` as the engine calls it."""
        return self.rank


def find_world(
    world_size: int | None = None,
    rank: int | None = None,
    *,
    library: Library = "torch",
    environment: Mapping[str, str] | None = None,
) -> World:
    """Return world and rank of this process.

    Args:
        world_size: Said by the caller, with ``rank``; nothing else is asked then.
        rank: 0 to world_size-1.
        library: Which runtime to ask if it runs in this process: torch_xla (both generations of its names), then
            torch.distributed; or JAX.
        environment: Default: that of the process. torchrun's RANK and WORLD_SIZE, the job's spec, or what GKE sets.

    Raises:
        IdentityError: Only one of the two was said, the rank is out of range, or the witnesses disagree: a process that
            takes itself for "0 of 1" among others would read everything, as would each of them.

    Examples:
        >>> find_world(environment={"RANK": "2", "WORLD_SIZE": "4"}, library="jax")
        World(world_size=4, rank=2)
    """
    if world_size is not None or rank is not None:
        return _said(world_size, rank)
    by_environment = world_of_environment(os.environ if environment is None else environment)
    by_runtime = world_of_jax() if library == "jax" else world_of_torch()
    if by_runtime is None or by_runtime.world_size == 1:
        # A runtime of one process (PJRT on CPU, or one that was never told of the others) knows nothing of the job.
        return by_environment or by_runtime or World(1, 0)
    if by_environment is not None and by_runtime.world_size % by_environment.world_size:
        found = f"{by_runtime.world_size} readers by the runtime, {by_environment.world_size} by the environment"
        raise IdentityError([Fault("world_size", found, "one number from all witnesses", _PASS_BOTH)])
    return by_runtime


def _said(world_size: int | None, rank: int | None) -> World:
    faults = []
    if world_size is None or rank is None:
        given, absent = ("world_size", "rank") if rank is None else ("rank", "world_size")
        faults.append(Fault(absent, "nothing", f"both of them, since {given} is given", "give both or neither"))
    elif world_size < 1:
        faults.append(Fault("world_size", str(world_size), "at least 1"))
    elif not 0 <= rank < world_size:
        faults.append(Fault("rank", str(rank), f"0 to {world_size - 1}, since world_size is {world_size}"))
    if faults:
        raise IdentityError(faults)
    assert world_size is not None
    assert rank is not None
    return World(world_size, rank)


def world_of_torch() -> World | None:
    """Return what torch_xla, else torch.distributed, says in this process; None if neither runs.

    A torch_xla that knows only this process (PJRT on CPU) does not silence a torch.distributed that knows of others.
    """
    runtime, xla_model = sys.modules.get("torch_xla.runtime"), sys.modules.get("torch_xla.core.xla_model")
    has_xla = runtime is not None or xla_model is not None
    by_xla = World(*replicas_of(runtime, xla_model)) if has_xla else None
    if by_xla is not None and by_xla.world_size > 1:
        return by_xla
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return World(distributed.get_world_size(), distributed.get_rank())
    return by_xla


def replicas_of(runtime: ModuleType | None, xla_model: ModuleType | None) -> tuple[int, int]:
    """Return how many processes (or device threads) torch_xla feeds separately, and which of them this is.

    Under SPMD one process feeds all its devices, so processes count; else each replica reads for itself.

    Args:
        runtime: ``torch_xla.runtime``; since 2.1 it has ``world_size`` and ``global_ordinal``.
        xla_model: ``torch_xla.core.xla_model``; before, it had ``xrt_world_size`` and ``get_ordinal``.
    """
    if runtime is not None and hasattr(runtime, "world_size"):
        replicas = int(runtime.world_size()), int(runtime.global_ordinal())
        processes = int(runtime.process_count()), int(runtime.process_index())
        return processes if runtime.is_spmd() or replicas[0] == 1 else replicas
    if xla_model is None:
        return 1, 0
    return int(xla_model.xrt_world_size()), int(xla_model.get_ordinal())


def world_of_jax() -> World | None:
    """Return JAX's processes, if ``jax.distributed`` runs in this process or it was started with one; else None."""
    if "jax" not in sys.modules:
        return None
    import jax

    return World(jax.process_count(), jax.process_index())


def world_of_environment(environment: Mapping[str, str]) -> World | None:
    """Return what the environment says, or None if it says nothing of other processes.

    Raises:
        IdentityError: It speaks of other processes, but not completely.
    """
    if wire.ENV_RANK in environment or wire.ENV_WORLD_SIZE in environment:
        return _said(_number(environment, wire.ENV_WORLD_SIZE), _number(environment, wire.ENV_RANK))
    spec = Path(environment.get(wire.ENV_SPEC) or wire.SPEC_PATH)
    if wire.ENV_SPEC in environment or spec.is_file():
        return _of_job(spec, environment)
    hosts = [name for name in environment.get(wire.ENV_TPU_WORKER_HOSTNAMES, "").split(",") if name]
    slices = _number(environment, wire.ENV_MEGASCALE_NUM_SLICES) or 1
    if len(hosts) <= 1 and slices == 1:
        index = _number(environment, wire.ENV_COMPLETION_INDEX)
        if index:
            found = f"{wire.ENV_COMPLETION_INDEX}={index}, and nothing that says of how many"
            raise IdentityError([Fault("world_size", found, "the number of readers", _PASS_BOTH)])
        return None
    slice_index = _needed(environment, wire.ENV_MEGASCALE_SLICE_ID, slices)
    host = _needed(environment, wire.ENV_TPU_WORKER_ID, len(hosts))
    each = max(1, len(hosts))
    return _said(slices * each, slice_index * each + host)


def _of_job(path: Path, environment: Mapping[str, str]) -> World:
    from tpuworker.identity import identify
    from tpuworker.spec import load_job

    identity = identify(load_job(path.read_text(encoding="utf-8")), environment)
    return World(identity.num_hosts, identity.host_rank)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise IdentityError([Fault(name, repr(text), "a number from 0 up")])
    return int(text)


def _needed(environment: Mapping[str, str], name: str, count: int) -> int:
    value = _number(environment, name)
    if value is None and count > 1:
        raise IdentityError([Fault(name, "nothing", f"0 to {count - 1}, since there are {count}", _PASS_BOTH)])
    return value or 0
