"""Makes the two images that need no registry and no build: busybox for small pods, and the sandbox's pause.

Both are Debian's static busybox in one layer, written as a docker archive (one tar of JSON and layer), which
containerd imports.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = "localhost/tpulaunch-test/busybox:1"
PAUSE = "localhost/tpulaunch-test/pause:1"


def write_archive(path: Path, busybox: Path) -> None:
    """Writes an archive with both images, made of the static `busybox` program."""
    layer = _layer(busybox)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    entries, files = [], {"layer.tar": layer}
    for name, command in ((BUSYBOX, ["/bin/sh"]), (PAUSE, ["/bin/sleep", "2147483647"])):
        config = {
            "architecture": machine,
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
        text = json.dumps(config).encode()
        file_name = f"{hashlib.sha256(text).hexdigest()}.json"
        files[file_name] = text
        entries.append({"Config": file_name, "RepoTags": [name], "Layers": ["layer.tar"]})
    files["manifest.json"] = json.dumps(entries).encode()
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            _add(archive, name, content)


def _layer(busybox: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        _add(archive, "bin/busybox", busybox.read_bytes(), 0o755)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        _add(archive, "etc/group", b"root:x:0:\nnobody:x:65534:\n")
        for applet in subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split():
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
    return stream.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
