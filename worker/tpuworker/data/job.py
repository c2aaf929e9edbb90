"""What the data engine asks of a job, and of the host that reads."""

from __future__ import annotations

from typing import Protocol

from tpuworker.spec.data import DataSpec


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
