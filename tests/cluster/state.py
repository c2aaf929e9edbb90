"""What is remembered of a running cluster outside the process that started it, and how leftovers are removed.

Each cluster has one directory in the temporary directory; `state.json` in it names the cluster's machine and its
owner. A cluster whose owner is gone (a test run that was killed) has no processes any more, since the kernel ended
them with it; what is left are files and empty cgroups, which the next start sweeps away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import cgroups
from tests.cluster.errors import ClusterError
from tests.cluster.machine import Machine, end, is_alive, run
from tests.cluster.network import Network
from tests.cluster.pools import Pool

PREFIX = "tpulaunch-cluster-"


@dataclass(frozen=True)
class NodeState:
    """A node: `number` decides its addresses; `machine` is None while it is powered off, and for a fake node."""

    name: str
    pool: Pool
    number: int
    machine: Machine | None


@dataclass(frozen=True)
class State:
    """A cluster's processes and names. `owner_pid` is None for one that was told to stay (`up`)."""

    server: str
    owner_pid: int | None
    owner_start_ticks: int | None
    machine: Machine
    switch: Machine
    network: Network
    nodes: dict[str, NodeState]
    archives: tuple[str, ...] = ()

    def save(self, directory: Path) -> None:
        """Writes the state; a reader never sees half of it."""
        scratch = directory / "state.json.new"
        scratch.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        scratch.rename(directory / "state.json")

    @classmethod
    def load(cls, directory: Path) -> State:
        """Reads what `save` wrote."""
        raw = json.loads((directory / "state.json").read_text())
        return cls(
            server=raw["server"],
            owner_pid=raw["owner_pid"],
            owner_start_ticks=raw["owner_start_ticks"],
            machine=_machine(raw["machine"]),
            switch=_machine(raw["switch"]),
            network=Network(**raw["network"]),
            nodes={
                name: NodeState(
                    name, Pool(**node["pool"]), node["number"], _machine(node["machine"]) if node["machine"] else None
                )
                for name, node in raw["nodes"].items()
            },
            archives=tuple(raw["archives"]),
        )


def _machine(raw: dict[str, Any]) -> Machine:
    return Machine(raw["name"], raw["init_pid"], raw["start_ticks"], tuple(raw["namespaces"]))


def new_directory() -> Path:
    """A fresh directory for one cluster."""
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def directories() -> Iterator[Path]:
    """Directories of all clusters of this host, running or left over."""
    yield from sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def is_stale(directory: Path) -> bool:
    """Whether the cluster's owner or its machine is gone."""
    try:
        state = State.load(directory)
    except FileNotFoundError:
        return _claimed_by(directory) is False
    if not state.machine.is_alive():
        return True
    owner, ticks = state.owner_pid, state.owner_start_ticks
    return owner is not None and ticks is not None and not is_alive(owner, ticks)


def claim(directory: Path, pid: int, start_ticks: int) -> None:
    """Marks a directory as being filled by this process, before there is a state to write."""
    (directory / "starting.json").write_text(json.dumps([pid, start_ticks]))


def _claimed_by(directory: Path) -> bool:
    try:
        pid, ticks = json.loads((directory / "starting.json").read_text())
    except (FileNotFoundError, ValueError):
        return True  # a moment before its claim; a directory without one is never taken for ours
    return is_alive(pid, ticks)


def sweep() -> list[Path]:
    """Removes what ended clusters left; returns their directories."""
    stale = [directory for directory in directories() if is_stale(directory)]
    for directory in stale:
        remove(directory)
    return stale


def remove(directory: Path) -> None:
    """Ends the cluster of that directory and removes everything of it; raises when something would stay."""
    with contextlib.suppress(FileNotFoundError):
        state = State.load(directory)
        end(state.machine.init_pid, state.machine.start_ticks)
        _remove_interface(state.network.interface)
    for node in directory.glob("nodes/*"):
        cgroups.remove_containers(cgroups.containers_of(node))
    cgroups.remove(directory.name)
    while directory.exists():
        with contextlib.suppress(FileNotFoundError):  # another session may sweep the same directory meanwhile
            shutil.rmtree(directory)


def leftovers(directory: Path, state: State) -> list[str]:
    """What of an ended cluster can still be found: nothing, unless something is wrong."""
    found = [f"process {pid}" for pid in _processes_naming(directory)]
    mounts = Path("/proc/self/mountinfo").read_text()
    found += [f"mount {line.split()[4]}" for line in mounts.splitlines() if str(directory) in line]
    if (Path("/sys/class/net") / state.network.interface).exists():
        found.append(f"interface {state.network.interface}")
    found += [f"cgroup {path}" for path in cgroups.find(directory.name)]
    if directory.exists():
        found.append(f"directory {directory}")
    if state.machine.is_alive():
        found.append(f"machine {state.machine.init_pid}")
    return found


def _processes_naming(directory: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
    return found


def _remove_interface(interface: str) -> None:
    # It goes with the switch, a moment after the switch's last process.
    if (Path("/sys/class/net") / interface).exists():
        with contextlib.suppress(ClusterError):
            run("ip", "link", "delete", interface)
