"""The cluster's control groups: one per node below one per cluster, in every tree the host has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def make(cluster: str, node: str) -> None:
    """Makes a node's groups. A kubelet expects its own to be there, as an init system would have made them."""
    for tree in _trees():
        for path in (tree / cluster, tree / cluster / node):
            path.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                # Version 1 starts them empty, and an empty set takes no process.
                given = path / name
                if (tree / "cpuset.mem_exclusive").exists() and not given.read_text().strip():
                    given.write_text((path.parent / name).read_text())


def find(cluster: str) -> list[Path]:
    """The cluster's top groups that exist."""
    return [tree / cluster for tree in _trees() if (tree / cluster).is_dir()]


def remove(cluster: str) -> None:
    """Removes the groups of a cluster that has no process any more."""
    for top in find(cluster):
        _remove(top)


def containers_of(node: Path) -> set[str]:
    """The containers and sandboxes that the containerd of a node's directory knows."""
    return {path.name for path in (node / "containerd/io.containerd.grpc.v1.cri").glob("*/*")}


def find_containers(identities: Iterable[str]) -> list[Path]:
    """The groups of these containers. A kubelet without QoS groups has them beside the cluster's, not below."""
    return [path for tree in _trees() for name in identities if (path := tree / "k8s.io" / name).is_dir()]


def remove_containers(identities: Iterable[str]) -> None:
    """Removes the groups of containers whose node was killed, which a machine's end would do.

    A kubelet that finds groups of its containers without a process asks for each again and again before it registers.
    """
    for top in find_containers(identities):
        _remove(top)


def _remove(top: Path) -> None:
    for path, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(FileNotFoundError):
            Path(path).rmdir()


def _trees() -> Iterator[Path]:
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    yield from (path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink())
