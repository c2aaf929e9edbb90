"""The cluster for people: `python -m tests.cluster up | status | down | build | image`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.cluster import images, state
from tests.cluster.build import build, cache_dir
from tests.cluster.cluster import OwnCluster
from tests.cluster.errors import ClusterError
from tests.cluster.prerequisites import require_programs
from tests.cluster.state import State


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build every part into the cache (about ten minutes once)")
    image = commands.add_parser("image", help="build the worker image and tell its size")
    image.add_argument("backend", choices=("jax", "torch-xla"))
    image.add_argument("--runtime", choices=("cpu", "tpu"), default="cpu", help="tpu: with libtpu, as it is shipped")
    commands.add_parser("up", help="start a cluster that stays, and print its kubeconfig")
    commands.add_parser("status", help="list the clusters of this host")
    down = commands.add_parser("down", help="end clusters and remove everything of them")
    down.add_argument("directory", nargs="?", type=Path, help="default: every one started by `up` or left over")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "down":
            return _down(chosen.directory)
        if chosen.command == "image":
            return _image(chosen.backend, chosen.runtime)
        return {"build": _build, "up": _up, "status": _status}[chosen.command]()
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1


def _build() -> int:
    require_programs()
    for part, version in build().versions.items():
        print(f"{part} {version}")
    print(cache_dir())
    return 0


def _image(backend: str, runtime: str) -> int:
    require_programs()
    archive = images.archive_of(backend, runtime)
    layers = images.layer_bytes(archive)
    print(f"{images.name_of(backend, runtime)}  {sum(layers) / 1e6:.0f} MB unpacked")
    print(f"layers (MB): {', '.join(f'{size / 1e6:.1f}' for size in layers)}")
    print(archive)
    return 0


def _up() -> int:
    start = time.monotonic()
    cluster = OwnCluster.up(stays=True)
    print(f"up in {time.monotonic() - start:.1f} s: {', '.join(cluster.nodes)}", file=sys.stderr)
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _status() -> int:
    for directory in state.directories():
        if state.is_stale(directory):
            print(f"{directory}  left over")
            continue
        try:
            known = State.load(directory)
        except FileNotFoundError:
            print(f"{directory}  starting")
            continue
        owner = f"of process {known.owner_pid}" if known.owner_pid else "stays"
        print(f"{directory}  {owner}  {known.server}")
        for node in known.nodes.values():
            life = "fake" if not node.pool.real else "running" if node.machine else "powered off"
            print(f"  {node.name:12} {life:12} {node.pool.accelerator} {node.pool.topology} {node.pool.chips} chips")
    return 0


def _down(directory: Path | None) -> int:
    chosen = [directory] if directory else [each for each in state.directories() if _is_ours_to_end(each)]
    for each in chosen:
        if not (each / "state.json").exists() and not state.is_stale(each):
            raise ClusterError(f"{each} holds no cluster")
        state.remove(each)
        print(f"removed {each}", file=sys.stderr)
    return 0


def _is_ours_to_end(directory: Path) -> bool:
    if state.is_stale(directory):
        return True
    return (directory / "state.json").exists() and State.load(directory).owner_pid is None


if __name__ == "__main__":
    sys.exit(main())
