"""What the data engine asks of a job, of the host that reads, and of hosts that talk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tpuworker.spec.data import DataSpec

#: All-gather among the hosts: a name and this host's bytes to the bytes of every host by rank.
Exchange = Callable[[str, bytes], list[bytes]]
#: A name and an action to its result, if the action went well on every host.
Together = Callable[[str, Callable[[], Any]], Any]


class DataJob(Protocol):
    """A job, as far as its data goes. :class:`tpuworker.spec.job.TPUJob` is one; a program's own loader is another."""

    @property
    def data(self) -> DataSpec:
        """Which rows, in which order, in which shape."""
        ...

    @property
    def num_hosts(self) -> int:
        """Hosts that share every global batch."""
        ...

    @property
    def max_steps(self) -> int | None:
        """Steps after which the job ends, if that is before its epochs do."""
        ...

    @property
    def free_memory_bytes(self) -> int:
        """RAM of one host that nothing but the worker takes; the same number on all hosts, as the order rests on it."""
        ...


class Host(Protocol):
    """What the loader asks of an identity."""

    @property
    def host_rank(self) -> int:
        """Rank of this host over all slices."""
        ...

    @property
    def num_hosts(self) -> int:
        """Hosts of the job."""
        ...
