"""Builds the project's worker image from its Dockerfile with buildah, on a Debian base made here: no registry is asked.

The base, the layers and the images are kept in the cache; an image has a key of everything that goes into it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.cluster.build import cache_dir, forget_unused, locked
from tests.cluster.errors import ClusterError

PROJECT = Path(__file__).parents[2]
_SUITE = "bookworm"
# torch_xla's own library is linked against Python's, which Debian packs apart from the interpreter.
_PACKAGES = {
    "jax": "python3,python3-pip,python3-venv,ca-certificates",
    "torch-xla": "python3,python3-pip,python3-venv,ca-certificates,libpython3.11",
}
_SOURCES = ("Dockerfile", ".dockerignore", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_TREES = ("launcher", "worker", "manifests")
_CERTIFICATES = Path("/etc/ssl/certs")
_STORAGE_LIMIT_BYTES = 12 * 10**9
# Copies of the unpacked libraries at the worst moment: the installer's cache, the stage, its layer, the archive. For
# PyTorch, with CUDA until it is thrown out, 38 GB were seen at once.
_FREE_BYTES = {"jax": 10 * 10**9, "torch-xla": 45 * 10**9}
# A build that is interrupted leaves no process and no mount.
_IN_A_MACHINE = (
    "setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--mount-proc",
)  # fmt: skip


def name_of(backend: str, runtime: str = "cpu") -> str:
    """The image's name on the nodes."""
    return f"localhost/tpulaunch-test/tpuworker:{backend}-{runtime}"


def archive_of(backend: str, runtime: str = "cpu") -> Path:
    """The docker archive of the worker image, built if the sources or the base changed since the last time.

    By default without libtpu: no host of a test cluster has a TPU, and each takes a copy of the image.
    """
    with locked(cache_dir() / f"image-{backend}.lock"):  # neither backend waits for the other's build
        base = _base(backend)
        place = cache_dir() / f"image-{backend}-{runtime}-{_key(base)}.tar"
        if not place.exists():
            print(f"building the worker image for {backend} ...", file=sys.stderr, flush=True)
            _build(backend, runtime, base, place)
        # Only the newest is of use, and each is large; whoever still loads an older one holds it open.
        for old in cache_dir().glob(f"image-{backend}-{runtime}-*.tar"):
            if old != place:
                old.unlink()
        forget_unused("base-*.tar", base)
    return place


def configuration_of(archive: Path) -> dict[str, Any]:
    """The image's configuration as its builder wrote it: user, entry point, variables, labels, history."""
    with tarfile.open(archive) as content:
        [image] = json.load(_member(content, "manifest.json"))
        found: dict[str, Any] = json.load(_member(content, image["Config"]))
    return found


def layer_bytes(archive: Path) -> list[int]:
    """Sizes of the image's layers, unpacked, in order."""
    with tarfile.open(archive) as content:
        [image] = json.load(_member(content, "manifest.json"))
        return [content.getmember(name).size for name in image["Layers"]]


def _member(content: tarfile.TarFile, name: str) -> Any:
    return content.extractfile(name)


def _key(base: Path) -> str:
    digest = hashlib.sha256(base.name.encode())
    paths = [PROJECT / name for name in _SOURCES]
    paths += [path for tree in _TREES for path in (PROJECT / tree).rglob("*") if path.is_file()]
    for path in sorted(paths):
        if "__pycache__" not in path.parts and path.exists():
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _base(backend: str) -> Path:
    packages = _PACKAGES[backend]
    place = cache_dir() / f"base-{_SUITE}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}.tar"
    if place.exists():
        return place
    print(f"making a Debian {_SUITE} base image ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="tpulaunch-base-") as scratch:
        root = Path(scratch) / "root"
        _run("debootstrap", "--variant=minbase", f"--include={packages}", _SUITE, str(root))
        for junk in (root / "var/cache/apt/archives", root / "var/lib/apt/lists", root / "usr/share/doc"):
            shutil.rmtree(junk, ignore_errors=True)
            junk.mkdir(parents=True)
        _run("tar", "--create", "--numeric-owner", f"--file={scratch}/base.tar", f"--directory={root}", ".")
        shutil.move(f"{scratch}/base.tar", place)
    return place


def _build(backend: str, runtime: str, base: Path, place: Path) -> None:
    # Storage of its own: neither the host's images nor its configuration play a part. Jax's stays, so that a change of
    # the sources builds one small layer and not the libraries again; PyTorch's brings CUDA and is too large to keep.
    kept = cache_dir() / "buildah"
    if _bytes_of(kept) > _STORAGE_LIMIT_BYTES:
        shutil.rmtree(kept)
    free, wanted = shutil.disk_usage(cache_dir()).free, _FREE_BYTES[backend]
    if free < wanted:
        raise ClusterError(
            f"an image for {backend} needs {wanted / 1e9:.0f} GB in {cache_dir()} while it is built, and "
            f"{free / 1e9:.0f} are free; make room, or name a larger disk by XDG_CACHE_HOME"
        )
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="building-") as scratch:
        root = f"{kept if backend == 'jax' else scratch}/root"
        # Large files in between go where the rest is, and go with it.
        tool = (*_IN_A_MACHINE, "env", f"TMPDIR={scratch}", "buildah")
        buildah = (*tool, f"--root={root}", f"--runroot={scratch}/run", "--storage-driver=overlay")
        name = name_of(backend, runtime)
        base_name = f"localhost/tpulaunch-test/{base.stem}"
        if subprocess.run([*buildah, "inspect", base_name], check=False, capture_output=True).returncode != 0:
            container = _run(*buildah, "from", "scratch").strip()
            _run(*buildah, "add", "--quiet", container, str(base), "/")
            _run(*buildah, "commit", "--quiet", "--rm", container, base_name)
        # The authorities this host trusts are trusted in the build as well; the image keeps its own.
        passed = [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_dir() else []
        passed += [f"--build-arg=BASE_IMAGE={base_name}", f"--build-arg=BACKEND={backend}"]
        passed += [f"--build-arg=RUNTIME={runtime}", f"--tag={name}", f"--file={PROJECT / 'Dockerfile'}"]
        _run(*buildah, "bud", "--layers", "--isolation=chroot", "--network=host", *passed, str(PROJECT))
        _run(*buildah, "push", "--quiet", name, f"docker-archive:{scratch}/image.tar:{name}")
        Path(scratch, "image.tar").rename(place)


def _bytes_of(directory: Path) -> int:
    if not directory.exists():
        return 0
    return int(_run("du", "--summarize", "--bytes", str(directory)).split()[0])


def _run(*command: str) -> str:
    done = subprocess.run(["nice", "-n", "5", *command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-6000:]
        raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}:\n{tail}")
    return done.stdout
