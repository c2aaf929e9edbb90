"""Which host of which slice this process is: read once from the environment, by two witnesses, with no default.

The spec declares how many slices and hosts there are. The platform says which of them this is, several times over,
and every statement must be the same. A statement that GKE's own rules promise and that is absent is a fault with a
known cause, so the refusal names it. "Alone, rank 0" is what a spec of one host declares, never what a bare
environment means.

    fact            witnesses
    slice_index     TPULAUNCH_SLICE_INDEX (JobSet's label), MEGASCALE_SLICE_ID (GKE), the pod's name, RANK (torchrun)
    host_of_slice   JOB_COMPLETION_INDEX (Kubernetes), TPU_WORKER_ID (GKE), the pod's name, RANK (torchrun)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from tpuworker.errors import Fault, IdentityError
from tpuworker.spec import wire
from tpuworker.spec.job import TPUJob

_POD_NAME = re.compile(rf"-{wire.REPLICATED_JOB}-(\d+)-(\d+)(-[a-z0-9]{{5}})?")
#: A name of full length may have been cut in its middle by Kubernetes, and then proves nothing.
_LONGEST_NAME = 63
_WEBHOOK_CONDITIONS = (
    "GKE's webhook sets it for an Indexed Job with a pod subdomain, parallelism above 1 and a google.com/tpu request: "
    "keep network.enableDNSHostnames of the JobSet on, and see that the pod asks for its chips"
)


@dataclass(frozen=True)
class Identity:
    """One host of the job.

    Attributes:
        slice_index: 0 to num_slices-1.
        num_slices: Slices of the job.
        host_of_slice: 0 to hosts_per_slice-1.
        hosts_per_slice: Hosts of one slice.
        coordinator: Address of host rank 0, where all hosts meet.
        coordinator_port: Port of the rendezvous, or None for the backend's usual one.
        hostnames: Addresses of the hosts of this slice in order, as the platform lists them; may be empty.
        restart_attempt: How often the JobSet has restarted.
        pod_name: Name of the pod, for messages; may be empty.
        node_name: Name of the node, for messages; may be empty.
    """

    slice_index: int
    num_slices: int
    host_of_slice: int
    hosts_per_slice: int
    coordinator: str
    coordinator_port: int | None = None
    hostnames: tuple[str, ...] = ()
    restart_attempt: int = 0
    pod_name: str = ""
    node_name: str = ""

    @property
    def host_rank(self) -> int:
        """Rank of this host in the job, 0 to num_hosts-1: slice after slice."""
        return self.slice_index * self.hosts_per_slice + self.host_of_slice

    @property
    def num_hosts(self) -> int:
        """Hosts of the job."""
        return self.num_slices * self.hosts_per_slice

    @property
    def label(self) -> str:
        """``slice/host``, as messages and logs name a host."""
        return f"{self.slice_index}/{self.host_of_slice}"

    def label_of(self, host_rank: int) -> str:
        """Return ``slice/host`` of another host."""
        return "/".join(map(str, divmod(host_rank, self.hosts_per_slice)))

    def as_dict(self) -> dict[str, object]:
        """Return the fields and the rank as plain values, for logs."""
        return asdict(self) | {"host_rank": self.host_rank, "num_hosts": self.num_hosts}


@dataclass(frozen=True)
class _Claim:
    """What one witness says."""

    witness: str
    value: int


def identify(job: TPUJob, environment: Mapping[str, str]) -> Identity:
    """Return which host of the job the environment says this is.

    Args:
        job: The job; it declares the sizes every claim is judged by.
        environment: Variables of the process, read once by the caller.

    Raises:
        IdentityError: A claim is malformed, out of range, contradicted, or absent where it must exist; all at once.
    """
    reader = _Reader(job, environment)
    slice_index, host_of_slice = reader.slice_index(), reader.host_of_slice()
    hostnames = reader.hostnames()
    coordinator, port = reader.coordinator()
    restart_attempt = reader.number(wire.ENV_RESTART_ATTEMPT) or 0
    if reader.faults:
        raise IdentityError(reader.faults, "environment")
    return Identity(
        slice_index=slice_index,
        num_slices=job.spec.slice.count,
        host_of_slice=host_of_slice,
        hosts_per_slice=job.hosts_per_slice,
        coordinator=coordinator,
        coordinator_port=port,
        hostnames=hostnames,
        restart_attempt=restart_attempt,
        pod_name=environment.get(wire.ENV_POD_NAME, ""),
        node_name=environment.get(wire.ENV_NODE_NAME, ""),
    )


class _Reader:
    """Reads claims and gathers faults, so that one refusal tells everything."""

    def __init__(self, job: TPUJob, environment: Mapping[str, str]) -> None:
        self._job = job
        self._environment = environment
        self.faults: list[Fault] = []
        self._numbers: dict[str, int | None] = {}
        self._torchrun_place = self._read_torchrun()
        self._pod = self._read_pod_name()

    def number(self, variable: str) -> int | None:
        """Return a variable's number, or None if it is absent or malformed (then a fault)."""
        if variable not in self._numbers:
            text = self._environment.get(variable)
            self._numbers[variable] = int(text) if text is not None and re.fullmatch("[0-9]{1,9}", text) else None
            if text is not None and self._numbers[variable] is None:
                self.faults.append(Fault(variable, repr(text), "a number from 0 up"))
        return self._numbers[variable]

    def slice_index(self) -> int:
        """Return the agreed slice, 0 after a fault."""
        count = self._job.spec.slice.count
        claims = [
            *self._claim(wire.ENV_SLICE_INDEX),
            *self._claim(wire.ENV_MEGASCALE_SLICE_ID),
            *self._derived(wire.ENV_POD_NAME, self._pod and self._pod[0]),
            *self._derived(wire.ENV_RANK, self._torchrun_place and self._torchrun_place[0]),
        ]
        num_slices = self.number(wire.ENV_MEGASCALE_NUM_SLICES)
        if num_slices is not None and num_slices != count:
            self._contradicts_spec(wire.ENV_MEGASCALE_NUM_SLICES, num_slices, f"{count} slices (spec.slice.count)")
        if count > 1 and wire.ENV_MEGASCALE_SLICE_ID not in self._environment and not self._under_torchrun:
            self.faults.append(
                Fault(
                    wire.ENV_MEGASCALE_SLICE_ID,
                    "nothing",
                    f"this slice's number, since the job has {count} slices",
                    "GKE's webhook sets it for JobSets; for a cluster without it write "
                    "spec.schedule.multislice_env: explicit",
                )
            )
        return self._agreed("slice", claims, count, wire.ENV_SLICE_INDEX)

    def host_of_slice(self) -> int:
        """Return the agreed host of the slice, 0 after a fault."""
        shape = self._job.spec.slice.shape
        claims = [
            *self._claim(wire.ENV_COMPLETION_INDEX),
            *self._claim(wire.ENV_TPU_WORKER_ID),
            *self._derived(wire.ENV_POD_NAME, self._pod and self._pod[1]),
            *self._derived(wire.ENV_RANK, self._torchrun_place and self._torchrun_place[1]),
        ]
        must_be_numbered = shape.is_multi_host and shape.generation.webhook_is_documented
        if must_be_numbered and wire.ENV_TPU_WORKER_ID not in self._environment and not self._under_torchrun:
            self.faults.append(
                Fault(
                    wire.ENV_TPU_WORKER_ID,
                    "nothing",
                    f"this host's number, since a slice of {self._size()} has {shape.hosts} hosts",
                    _WEBHOOK_CONDITIONS,
                )
            )
        return self._agreed("host of the slice", claims, shape.hosts, wire.ENV_COMPLETION_INDEX)

    def hostnames(self) -> tuple[str, ...]:
        """Return the addresses of this slice's hosts, without ports."""
        for variable in (wire.ENV_TPU_PROCESS_ADDRESSES, wire.ENV_TPU_WORKER_HOSTNAMES):
            text = self._environment.get(variable)
            if not text:
                continue
            names = tuple(name.strip().rpartition(":")[0] or name.strip() for name in text.split(","))
            wanted = self._job.hosts_per_slice
            if len(names) != wanted:
                self._contradicts_spec(variable, f"{len(names)} hosts", f"{wanted} hosts ({self._size()})")
            return names
        return ()

    def coordinator(self) -> tuple[str, int | None]:
        """Return where all hosts meet, and the port if the environment chooses it."""
        address = self._environment.get(wire.ENV_COORDINATOR)
        if address:
            host, _, port = address.rpartition(":") if address.count(":") == 1 else (address, "", "")
            if port and not port.isdecimal():
                self.faults.append(Fault(wire.ENV_COORDINATOR, repr(address), "an address, with a number as port"))
                return host, None
            return host, int(port) if port else None
        if self._under_torchrun and "MASTER_ADDR" in self._environment:
            # torchrun's own store listens on MASTER_PORT, so only the address is taken from it.
            return self._environment["MASTER_ADDR"], None
        if self._job.num_hosts > 1:
            self.faults.append(
                Fault(
                    wire.ENV_COORDINATOR,
                    "nothing",
                    f"the address of host 0 of slice 0, since the job has {self._job.num_hosts} hosts",
                    "tpulaunch render sets it; under torchrun MASTER_ADDR does",
                )
            )
        return "localhost", None

    @property
    def _under_torchrun(self) -> bool:
        return wire.ENV_RANK in self._environment and wire.ENV_WORLD_SIZE in self._environment

    def _read_torchrun(self) -> tuple[int, int] | None:
        rank, world = self.number(wire.ENV_RANK), self.number(wire.ENV_WORLD_SIZE)
        hosts = self._job.num_hosts
        if (wire.ENV_RANK in self._environment) != (wire.ENV_WORLD_SIZE in self._environment):
            here, absent = (
                (wire.ENV_RANK, wire.ENV_WORLD_SIZE)
                if wire.ENV_RANK in self._environment
                else (wire.ENV_WORLD_SIZE, wire.ENV_RANK)
            )
            self.faults.append(Fault(absent, "nothing", f"both of them, since {here} is set", "torchrun sets both"))
        if world is not None and world != hosts:
            self._contradicts_spec(
                wire.ENV_WORLD_SIZE,
                world,
                f"{hosts} hosts ({self._job.spec.slice.count} slices x {self._job.hosts_per_slice})",
                "start one process per host: torchrun --nproc-per-node 1",
            )
            return None
        return None if rank is None else divmod(rank, self._job.hosts_per_slice)

    def _read_pod_name(self) -> tuple[int, int] | None:
        name = self._environment.get(wire.ENV_POD_NAME, "")
        match = next(iter(reversed(list(_POD_NAME.finditer(name)))), None)
        if match is None or match.end() != len(name) or len(name) >= _LONGEST_NAME:
            return None
        return int(match[1]), int(match[2])

    def _claim(self, variable: str) -> Iterator[_Claim]:
        value = self.number(variable)
        if value is not None:
            yield _Claim(variable, value)

    def _derived(self, variable: str, value: int | None) -> Iterator[_Claim]:
        if value is not None:
            yield _Claim(f"{variable}={self._environment[variable]}", value)

    def _agreed(self, what: str, claims: list[_Claim], count: int, first_witness: str) -> int:
        values = {claim.value for claim in claims}
        if len(values) > 1:
            said = ", ".join(f"{claim.witness} says {claim.value}" for claim in claims)
            self.faults.append(
                Fault(
                    claims[0].witness.partition("=")[0],
                    said,
                    f"one {what} from all witnesses",
                    "never set these variables yourself: the platform knows each host's value",
                )
            )
            return 0
        if not values:
            if count > 1 and first_witness not in self._environment:
                self.faults.append(
                    Fault(
                        first_witness,
                        "nothing",
                        f"the {what}, 0 to {count - 1} ({self._size()})",
                        "start the worker with tpulaunch submit, tpulaunch run --local or torchrun",
                    )
                )
            return 0  # the spec declares one: alone
        value = values.pop()
        if value >= count:
            witness = claims[0].witness
            self._contradicts_spec(witness.partition("=")[0], value, f"a {what} from 0 to {count - 1} ({self._size()})")
            return 0
        return value

    def _contradicts_spec(self, variable: str, found: object, wanted: str, hint: str = "") -> None:
        hint = hint or "the pod runs another spec, or on another slice, than the spec names"
        self.faults.append(Fault(variable, str(found), wanted, hint))

    def _size(self) -> str:
        spec = self._job.spec.slice
        return f"{spec.count} x {spec.generation} {spec.topology}"
