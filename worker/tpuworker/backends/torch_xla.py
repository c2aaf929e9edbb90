"""PyTorch/XLA: one SPMD process per host, exchange by torch.distributed gloo, compilations from XLA's own metrics."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tpuworker.backends import Ballot, Platform, Sharding, failures, rendezvous
from tpuworker.errors import Fault, IdentityError, RetryError
from tpuworker.identity import Identity
from tpuworker.spec.wire import PORT_TORCH_MASTER

if TYPE_CHECKING:
    import torch

#: How long a collective among hosts may take before the job is given up as lost; a first step may compile for long.
_COLLECTIVE_TIMEOUT_SECONDS = 1800


class TorchXlaBackend:
    """See :class:`tpuworker.backends.Backend`.

    On TPU one SPMD program spans all hosts. PJRT on CPU knows only its own process, so there each host runs its own
    program and :meth:`average_over_hosts` joins the gradients.

    Attributes:
        mesh: Devices of the program as [host, device]; axes ``host`` and ``device``. Set by ``start``.
        spans_hosts: Whether one program runs on the devices of all hosts.
        device: The device tensors are made on.
    """

    name: ClassVar[str] = "torch_xla"
    mesh: Any
    spans_hosts: bool
    device: torch.device

    def __init__(self) -> None:
        self._num_hosts = 1
        self._rank = 0
        self._group: Any = None
        self._store: Any = None
        self._rows: tuple[str, ...] | str = ("host", "device")

    def start(self, identity: Identity, *, platform: Platform, sharding: Sharding = "devices") -> None:
        """Join the other hosts and open the devices."""
        # torch_xla reads the platform while it is imported.
        os.environ["PJRT_DEVICE"] = platform.upper()
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.spmd as xs
        import torch_xla.runtime as xr

        self._num_hosts, self._rank = identity.num_hosts, identity.host_rank
        if identity.num_hosts > 1:
            self._join(identity)
        xr.use_spmd()
        world, ordinal = world_and_ordinal(xr, xm)
        self.spans_hosts = world == identity.num_hosts and world > 1
        if (world, ordinal) not in ((identity.num_hosts, identity.host_rank), (1, 0)):
            wanted = f"{identity.host_rank} of {identity.num_hosts} (slice/host {identity.label})"
            hint = "the TPU runtime numbers the hosts in another way than the platform's variables"
            raise IdentityError([Fault("torch_xla process index", f"process {ordinal} of {world}", wanted, hint)])
        if world == 1 and identity.num_hosts > 1 and platform == "tpu":
            found, wanted = "a program of this host alone", f"one over {identity.num_hosts} hosts"
            hint = "see that TPU_WORKER_HOSTNAMES and TPU_HOST_BOUNDS reach the process unchanged"
            raise IdentityError([Fault("torch_xla process count", found, wanted, hint)])
        num_devices = xr.global_runtime_device_count()
        self.mesh = xs.Mesh(np.arange(num_devices), (world, num_devices // world), ("host", "device"))
        self._rows = ("host", "device") if sharding == "devices" else "host"
        self.device = torch_xla.device()

    def _join(self, identity: Identity) -> None:
        import torch.distributed as dist

        port = identity.coordinator_port or PORT_TORCH_MASTER
        rendezvous.wait_for_name(identity.coordinator, port)
        timeout = datetime.timedelta(seconds=rendezvous.START_TIMEOUT_SECONDS)
        address = f"tcp://{identity.coordinator}:{port}"
        try:
            if not dist.is_initialized():
                dist.init_process_group(
                    "gloo",
                    init_method=address,
                    rank=identity.host_rank,
                    world_size=identity.num_hosts,
                    timeout=timeout,
                )
            # A group of its own, so that the trainer's collectives and ours can never be taken for each other.
            self._group = dist.new_group(
                backend="gloo", timeout=datetime.timedelta(seconds=_COLLECTIVE_TIMEOUT_SECONDS)
            )
        except RuntimeError as error:
            if failures.is_peer_failure(error):
                raise RetryError(f"the {identity.num_hosts} hosts did not meet at {address}: {error}") from error
            raise
        # A connection of its own: the group's is held for as long as one of its calls waits.
        self._store = dist.distributed_c10d._get_default_store().clone()

    @property
    def num_devices(self) -> int:
        """Devices of the job."""
        import torch_xla.runtime as xr

        return int(xr.global_runtime_device_count()) * (1 if self.spans_hosts else self._num_hosts)

    @property
    def num_local_devices(self) -> int:
        """Devices of this host."""
        import torch_xla.runtime as xr

        return int(xr.addressable_runtime_device_count())

    @property
    def versions(self) -> dict[str, str]:
        """Versions of torch and torch_xla, and the platform."""
        libraries = {name: importlib.metadata.version(name) for name in ("torch", "torch_xla")}
        return libraries | {"platform": os.environ["PJRT_DEVICE"].lower()}

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Begin the transfer of this host's rows; returns XLA tensors, sharded along axis 0."""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.spmd as xs

        batch: dict[str, Any] = {}
        for ndim in {array.ndim for array in arrays.values()}:
            # minibatch: this host gives its own rows, and the runtime makes the global batch of all hosts' rows.
            spec = xs.ShardingSpec(self.mesh, (self._rows, *(None,) * (ndim - 1)), minibatch=self.spans_hosts)
            some = {name: array for name, array in arrays.items() if array.ndim == ndim}
            rows = [torch.from_numpy(array if array.flags.writeable else array.copy()) for array in some.values()]
            # One call for all of them: half the time of a call for each.
            batch |= zip(some, xm.send_cpu_data_to_device(rows, self.device, input_sharding=spec), strict=True)
        return {name: batch[name] for name in arrays}

    def local_rows(self, batch: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return this host's rows [rows_per_host, ...]."""
        rows = {}
        for name, tensor in batch.items():
            whole = tensor.cpu().numpy()
            share = whole.shape[0] // self._num_hosts
            rows[name] = whole[self._rank * share : (self._rank + 1) * share] if self.spans_hosts else whole
        return rows

    def probe(self, batch: Mapping[str, Any]) -> None:
        """Sum every array over all devices of the program, and wait."""
        import torch
        import torch_xla

        total = torch.stack([tensor.to(torch.float32).sum() for tensor in batch.values()])
        torch_xla.sync(wait=True)
        del total

    def num_compiles(self) -> int:
        """Return how many programs XLA has compiled."""
        import torch_xla.debug.metrics as met

        data = met.metric_data("CompileTime")
        return int(data[0]) if data else 0

    def compiled_since(self, _count: int) -> tuple[str, ...]:
        """Return nothing: torch_xla names no programs."""
        return ()

    def exchange(self, tag: str, payload: bytes) -> list[bytes]:
        """Gather every host's bytes over gloo."""
        if self._num_hosts == 1:
            return [payload]
        import torch
        import torch.distributed as dist

        framed = rendezvous.frame(tag, payload)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self._num_hosts)]
        dist.all_gather(lengths, torch.tensor([len(framed)]), group=self._group)
        longest = max(int(length) for length in lengths)
        blocks = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self._num_hosts)]
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[: len(framed)] = torch.frombuffer(bytearray(framed), dtype=torch.uint8)
        dist.all_gather(blocks, mine, group=self._group)
        return [rendezvous.unframe(tag, block.numpy().tobytes(), host) for host, block in enumerate(blocks)]

    def broadcast(self, tag: str, payload: bytes | None) -> bytes:
        """Return host 0's bytes."""
        if self._num_hosts == 1:
            assert payload is not None
            return payload
        import torch
        import torch.distributed as dist

        framed = rendezvous.frame(tag, payload) if self._rank == 0 and payload is not None else b""
        length = torch.tensor([len(framed)])
        dist.broadcast(length, src=0, group=self._group)
        block = torch.zeros(int(length), dtype=torch.uint8)
        if framed:
            block[:] = torch.frombuffer(bytearray(framed), dtype=torch.uint8)
        dist.broadcast(block, src=0, group=self._group)
        return rendezvous.unframe(tag, block.numpy().tobytes(), 0)

    def vote(self, value: int) -> Ballot:
        """Begin a maximum over gloo, beside the devices' work."""
        if self._num_hosts == 1:
            return lambda: value
        import torch
        import torch.distributed as dist

        largest = torch.tensor([value], dtype=torch.int32)
        work = dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self._group, async_op=True)

        def read() -> int:
            work.wait()
            return int(largest)

        return read

    def average_over_hosts(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace each tensor by its mean over hosts; nothing to do where one program spans them all.

        Args:
            tensors: The same on every host, in order; on the device.
        """
        if self.spans_hosts or self._num_hosts == 1:
            return
        import torch
        import torch.distributed as dist

        tensors = list(tensors)
        flat = torch.cat([tensor.detach().reshape(-1).cpu() for tensor in tensors])
        dist.all_reduce(flat, group=self._group)
        flat /= self._num_hosts
        for tensor, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(mean.reshape(tensor.shape).to(tensor.device))

    def post(self, name: str, words: str) -> None:
        """Leave words in the store of torch.distributed."""
        if (store := self._store) is not None:
            with contextlib.suppress(RuntimeError):  # the store's host is gone
                store.compare_set(name, "", words)

    def posted(self, name: str) -> str | None:
        """Return the words that the store holds."""
        if (store := self._store) is not None:
            with contextlib.suppress(RuntimeError):
                return bytes(store.get(name)).decode() if store.check([name]) else None
        return None

    def wait(self) -> None:
        """Run what is pending and wait until the devices are idle."""
        import torch_xla
        import torch_xla.core.xla_model as xm

        torch_xla.sync(wait=True)
        xm.wait_device_ops()

    def stop(self) -> None:
        """Leave the process group. A second call does nothing."""
        if self._num_hosts > 1:
            import torch.distributed as dist

            self._store = None
            if dist.is_initialized():
                dist.destroy_process_group()


def world_and_ordinal(runtime: ModuleType, xla_model: ModuleType) -> tuple[int, int]:
    """Return the number of processes that share a program, and which of them this is.

    Args:
        runtime: ``torch_xla.runtime``; since 2.1 it has ``process_count`` and ``process_index``.
        xla_model: ``torch_xla.core.xla_model``; before, it had ``xrt_world_size`` and ``get_ordinal``.
    """
    if hasattr(runtime, "process_count"):
        return int(runtime.process_count()), int(runtime.process_index())
    return int(xla_model.xrt_world_size()), int(xla_model.get_ordinal())


BACKEND = TorchXlaBackend
