"""JAX: one global program over all hosts, rendezvous by jax.distributed, compilations from JAX's monitoring events."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tpuworker.backends import Ballot, Platform, Sharding, failures, rendezvous
from tpuworker.errors import Fault, IdentityError, RetryError
from tpuworker.identity import Identity
from tpuworker.spec.wire import PORT_JAX_COORDINATOR

if TYPE_CHECKING:
    import jax

#: Sent by JAX each time a program is built for a device, found in its persistent cache or not (jax/_src/dispatch.py).
_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
#: A lost peer is noticed within this time even if no message is under way.
_HEARTBEAT_SECONDS = 60


class JaxBackend:
    """See :class:`tpuworker.backends.Backend`.

    Attributes:
        mesh: All devices as [host, device], hosts by rank; axes ``host`` and ``device``. Set by ``start``.
        batch_sharding: Sharding of axis 0 of every array of a batch.
        replicated: Sharding of what every device holds whole.
    """

    name: ClassVar[str] = "jax"
    mesh: jax.sharding.Mesh
    batch_sharding: jax.sharding.NamedSharding
    replicated: jax.sharding.NamedSharding

    def __init__(self) -> None:
        self._compiled: list[str] = []
        self._own_work = False
        self._num_hosts = 1
        self._rank = 0
        self._store: Any = None

    def start(self, identity: Identity, *, platform: Platform, sharding: Sharding = "devices") -> None:
        """Join the other hosts and open the devices."""
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax.config.update("jax_platforms", platform if platform == "cpu" else "tpu,cpu")
        self._num_hosts, self._rank = identity.num_hosts, identity.host_rank
        jax.monitoring.register_event_duration_secs_listener(self._note_event)
        if identity.num_hosts > 1:
            self._join(identity)
        if jax.process_count() != identity.num_hosts or jax.process_index() != identity.host_rank:
            found = f"process {jax.process_index()} of {jax.process_count()}"
            wanted = f"{identity.host_rank} of {identity.num_hosts} (slice/host {identity.label})"
            hint = "the TPU runtime numbers the hosts in another way than the platform's variables"
            raise IdentityError([Fault("jax.process_index", found, wanted, hint)])
        by_host = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        grid = np.array(by_host, dtype=object).reshape(identity.num_hosts, -1)
        self.mesh = Mesh(grid, ("host", "device"))
        rows = PartitionSpec(("host", "device")) if sharding == "devices" else PartitionSpec("host")
        self.batch_sharding = NamedSharding(self.mesh, rows)
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self._build_programs()

    def _join(self, identity: Identity) -> None:
        import jax

        port = identity.coordinator_port or PORT_JAX_COORDINATOR
        rendezvous.wait_for_name(identity.coordinator, port)
        address = f"{identity.coordinator}:{port}"
        is_loopback = identity.coordinator in ("localhost", "127.0.0.1")
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                coordinator_address=address,
                num_processes=identity.num_hosts,
                process_id=identity.host_rank,
                coordinator_bind_address=address if is_loopback else None,
                initialization_timeout=rendezvous.START_TIMEOUT_SECONDS,
                heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                # All is said above; in a pod the detection only warns that it lacks a library.
                cluster_detection_method="deactivate",
            )
        except RuntimeError as error:
            if failures.is_peer_failure(error):
                raise RetryError(f"the {identity.num_hosts} hosts did not meet at {address}: {error}") from error
            raise
        from jax._src import distributed  # where Orbax, too, takes the service's client from: JAX shows it nowhere else

        self._store = distributed.global_state.client

    def _build_programs(self) -> None:
        import jax
        import jax.numpy as jnp

        def probe(batch: Mapping[str, jax.Array]) -> jax.Array:
            return jnp.stack([jnp.sum(array, dtype=jnp.float32) for array in batch.values()])

        self._probe = jax.jit(probe, out_shardings=self.replicated)
        self._largest = jax.jit(jnp.max, out_shardings=self.replicated)
        with self._own() as seen_before:
            jax.jit(lambda x: x + 1)(np.int32(1)).block_until_ready()
            if self._events == seen_before:
                version = importlib.metadata.version("jax")
                raise RuntimeError(f"JAX {version} compiles without sending {_COMPILE_EVENT}: nothing could be counted")

    @property
    def num_devices(self) -> int:
        """Devices of the job."""
        return int(self.mesh.size)

    @property
    def num_local_devices(self) -> int:
        """Devices of this host."""
        import jax

        return int(jax.local_device_count())

    @property
    def versions(self) -> dict[str, str]:
        """Versions of jax and jaxlib, the platform and the device kind."""
        import jax

        device = jax.local_devices()[0]
        libraries = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
        return libraries | {"platform": device.platform, "device": device.device_kind}

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Begin the transfer of this host's rows; returns global arrays [rows_per_host * num_hosts, ...]."""
        import jax

        shapes = {name: (array.shape[0] * self._num_hosts, *array.shape[1:]) for name, array in arrays.items()}
        # One call for all of them: a third less time than a call for each.
        batch: dict[str, Any] = jax.make_array_from_process_local_data(self.batch_sharding, dict(arrays), shapes)
        return batch

    def local_rows(self, batch: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return this host's rows [rows_per_host, ...]."""
        return {name: _local_rows(array) for name, array in batch.items()}

    def probe(self, batch: Mapping[str, Any]) -> None:
        """Sum every array over all devices, and wait."""
        self._probe(dict(batch)).block_until_ready()

    def num_compiles(self) -> int:
        """Return how many programs were compiled, own ones left out."""
        return len(self._compiled)

    def compiled_since(self, count: int) -> tuple[str, ...]:
        """Return the names of the functions compiled after the count."""
        return tuple(self._compiled[count:])

    def exchange(self, tag: str, payload: bytes) -> list[bytes]:
        """Gather every host's bytes through the devices' collectives."""
        framed = rendezvous.frame(tag, payload)
        if self._num_hosts == 1:
            return [payload]
        from jax.experimental import multihost_utils

        with self._own():
            lengths = multihost_utils.process_allgather(np.array([len(framed)], np.int32))
            block = np.zeros(rendezvous.padded_length(int(np.max(lengths))), np.uint8)
            block[: len(framed)] = np.frombuffer(framed, np.uint8)
            gathered = np.asarray(multihost_utils.process_allgather(block)).reshape(self._num_hosts, -1)
        return [rendezvous.unframe(tag, row.tobytes(), host) for host, row in enumerate(gathered)]

    def broadcast(self, tag: str, payload: bytes | None) -> bytes:
        """Return host 0's bytes."""
        if self._num_hosts == 1:
            assert payload is not None
            return payload
        from jax.experimental import multihost_utils

        is_source = self._rank == 0
        framed = rendezvous.frame(tag, payload) if is_source and payload is not None else b""
        with self._own():
            length = np.asarray(multihost_utils.broadcast_one_to_all(np.array([len(framed)], np.int32), is_source))
            block = np.zeros(rendezvous.padded_length(int(length[0])), np.uint8)
            block[: len(framed)] = np.frombuffer(framed, np.uint8)
            received = np.asarray(multihost_utils.broadcast_one_to_all(block, is_source))
        return rendezvous.unframe(tag, received.tobytes(), 0)

    def vote(self, value: int) -> Ballot:
        """Begin a maximum over all devices; reading it waits for this program only."""
        if self._num_hosts == 1:
            return lambda: value
        import jax

        shape = (self.mesh.size,)
        everywhere = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(("host", "device")))
        local = np.full(self.mesh.size // self._num_hosts, value, np.int32)
        with self._own():
            result = self._largest(jax.make_array_from_process_local_data(everywhere, local, shape))
        return lambda: int(result)

    def post(self, name: str, words: str) -> None:
        """Leave words in the coordination service of jax.distributed."""
        if (store := self._store) is not None:
            with contextlib.suppress(RuntimeError):  # some are there, or the service is gone
                store.key_value_set(name, words)

    def posted(self, name: str) -> str | None:
        """Return the words that the coordination service holds."""
        if (store := self._store) is not None:
            with contextlib.suppress(RuntimeError):
                return str(store.key_value_try_get(name))
        return None

    def wait(self) -> None:
        """Wait until all devices of this host are idle."""
        import jax

        jax.effects_barrier()
        for device in jax.local_devices():
            jax.device_put(np.int32(0), device).block_until_ready()

    def stop(self) -> None:
        """Leave jax.distributed; every host must do so. A second call does nothing."""
        import jax

        if self._is_stopped:
            return
        self._is_stopped = True
        self._store = None
        jax.monitoring.unregister_event_duration_listener(self._note_event)
        if self._num_hosts > 1:
            jax.distributed.shutdown()

    _events = 0
    _is_stopped = False

    def _note_event(self, event: str, _seconds: float, **details: str | int) -> None:
        if event == _COMPILE_EVENT:
            self._events += 1
            if not self._own_work:
                self._compiled.append(str(details.get("fun_name", "a program")))

    @contextlib.contextmanager
    def _own(self) -> Iterator[int]:
        """Leave what is compiled inside out of the count; gives the number of events seen before."""
        outer, self._own_work = self._own_work, True
        try:
            yield self._events
        finally:
            self._own_work = outer


def _local_rows(array: jax.Array) -> NDArray[Any]:
    """Join the shards of this host by their first row; devices that share rows hold them twice."""
    by_start = {shard.index[0].start or 0: shard for shard in array.addressable_shards}
    return np.concatenate([np.asarray(by_start[start].data) for start in sorted(by_start)])


BACKEND = JaxBackend
