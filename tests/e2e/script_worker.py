"""A stand-in for the worker image: its ``tpuworker`` runs the shell script in the variable SCRIPT.

The launcher's journeys (exit codes, restarts, logs, refusals) need a process that does a given thing at once; what the
real worker does has journeys of its own. ``python -m tests.e2e.script_worker FILE`` writes it for clusters of others.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
from pathlib import Path

from tests.cluster.static_image import BUSYBOX, write_archive

IMAGE = "localhost/tpulaunch-test/script-worker:1"
_PROGRAM = b'#!/bin/sh\nexec sh -c "$SCRIPT"\n'


def write_script_worker(path: Path) -> Path:
    """Write a docker archive of the image: busybox's, and one layer with the program."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    base = path.with_suffix(".base")
    write_archive(base, Path(busybox))
    with tarfile.open(base) as archive:
        files = {member.name: _read(archive, member) for member in archive.getmembers()}
    base.unlink()
    (entry,) = [found for found in json.loads(files["manifest.json"]) if BUSYBOX in found["RepoTags"]]
    layer = _layer()
    config = json.loads(files[entry["Config"]])
    config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(layer).hexdigest()}")
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": [*entry["Layers"], "program.tar"]}]
    fresh = path.with_suffix(".new")  # a node may be reading the one before
    with tarfile.open(fresh, "w") as archive:
        for layer_name in entry["Layers"]:
            _add(archive, layer_name, files[layer_name])
        _add(archive, "program.tar", layer)
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return fresh.replace(path)


def _layer() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        _add(archive, "bin/tpuworker", _PROGRAM, mode=0o755)
    return stream.getvalue()


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    print(f"{IMAGE} in {write_script_worker(Path(sys.argv[1]))}")
