"""The small interface between a job and its accelerator library, and the list of libraries that fulfil it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

from tpuworker.identity import Identity

if TYPE_CHECKING:
    from numpy.typing import NDArray

Platform = Literal["tpu", "cpu"]
Sharding = Literal["devices", "hosts"]
#: Reads the result of a vote: the largest value any host gave.
Ballot = Callable[[], int]

#: One name per file of this package that defines ``BACKEND``.
NAMES = ("jax", "torch_xla")


class Backend(Protocol):
    """What preflight, session and trainers need of an accelerator library.

    A backend is started once per process. Every host calls ``put``, ``probe``, ``exchange``, ``broadcast`` and ``vote``
    in the same order, from one thread. When a peer is lost they raise an error for which
    :func:`tpuworker.backends.failures.is_peer_failure` holds. ``post`` and ``posted`` wait for no peer: any host
    may call them at any time, from any thread.
    """

    name: ClassVar[str]

    def start(self, identity: Identity, *, platform: Platform, sharding: Sharding = "devices") -> None:
        """Join the other hosts and open the devices.

        Args:
            identity: This host.
            platform: What must be opened; never silently something else.
            sharding: ``devices``: each device gets its own rows of a batch. ``hosts``: a host's devices share them.

        Raises:
            RetryError: The other hosts did not come.
            IdentityError: The library numbers the hosts in another way than the platform.
        """

    @property
    def num_devices(self) -> int:
        """Devices of the job."""

    @property
    def num_local_devices(self) -> int:
        """Devices of this host."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the library and what it stands on; equal on all hosts of a sound job."""

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Begin the transfer of this host's rows and return the batch on devices.

        Args:
            arrays: By name, [rows_per_host, ...]; not to be written to afterwards.

        Returns:
            By name, the library's arrays; axis 0 is split over devices (or hosts). Where one program spans all hosts it
            is the global batch, [rows_per_host * num_hosts, ...].
        """

    def local_rows(self, batch: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return this host's rows of a batch on devices, in the order they were put: [rows_per_host, ...]."""

    def probe(self, batch: Mapping[str, Any]) -> None:
        """Run one small compiled program over every array of a batch on all devices, and wait for it."""

    def num_compiles(self) -> int:
        """Return how many programs were compiled so far, this package's own small ones left out."""

    def compiled_since(self, count: int) -> tuple[str, ...]:
        """Return names of what was compiled after ``num_compiles()`` was ``count``, where the library tells them."""

    def exchange(self, tag: str, payload: bytes) -> list[bytes]:
        """Return what every host gave, by host rank. For small payloads: each host holds them all.

        Args:
            tag: Name of the exchange; hosts that meet under different tags have diverged.
            payload: This host's bytes.

        Raises:
            RuntimeError: Hosts met under different tags.
        """

    def broadcast(self, tag: str, payload: bytes | None) -> bytes:
        """Return the bytes of host rank 0, which alone gives a payload."""

    def vote(self, value: int) -> Ballot:
        """Begin to find the largest ``value`` any host gives (int32, from 0 up); the result is read later.

        The vote is ordered before all work that is given to the devices afterwards, so reading it costs no waiting if
        a step lies between.
        """

    def post(self, name: str, words: str) -> None:
        """Leave words with host 0 under a name, for every host to find; the first under a name stay.

        They are lost without an error where host 0 is gone, or the hosts have not met or have parted.
        """

    def posted(self, name: str) -> str | None:
        """Return what was posted under a name, at once; None if nothing was, or host 0 is gone."""

    def wait(self) -> None:
        """Wait until the devices have done all work given so far."""

    def stop(self) -> None:
        """Leave the other hosts after a success. After a failure end the process instead: peers may be gone."""


def load(name: str) -> Backend:
    """Return a backend by name; only its own library is imported, and only when it starts.

    Raises:
        KeyError: No such backend.
    """
    if name not in NAMES:
        raise KeyError(name)
    return cast(Backend, importlib.import_module(f"tpuworker.backends.{name}").BACKEND())
