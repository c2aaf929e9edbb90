"""Builds the project's worker image from its Dockerfile with buildah, on a Debian base made here: no registry is asked.

Both the base and the images are kept in the cache, the images under a key of everything that goes into them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.build import cache_dir, forget_unused, locked
from tests.cluster.errors import ClusterError

PROJECT = Path(__file__).parents[2]
_SUITE = "bookworm"
_PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
_SOURCES = ("Dockerfile", ".dockerignore", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")
_TREES = ("launcher", "worker", "manifests")
_CERTIFICATES = Path("/etc/ssl/certs")


def name_of(backend: str) -> str:
    """The image's name on the nodes."""
    return f"localhost/tpulaunch-test/tpuworker:{backend}"


def archive_of(backend: str) -> Path:
    """The docker archive of the worker image, built if the sources or the base changed since the last time."""
    with locked(cache_dir() / "images.lock"):
        base = _base()
        place = cache_dir() / f"image-{backend}-{_key(base)}.tar"
        if not place.exists():
            print(f"building the worker image for {backend} ...", file=sys.stderr, flush=True)
            _build(backend, base, place)
        forget_unused(f"image-{backend}-*.tar", place)
    return place


def _key(base: Path) -> str:
    digest = hashlib.sha256(base.name.encode())
    paths = [PROJECT / name for name in _SOURCES]
    paths += [path for tree in _TREES for path in (PROJECT / tree).rglob("*") if path.is_file()]
    for path in sorted(paths):
        if "__pycache__" not in path.parts and path.exists():
            digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _base() -> Path:
    place = cache_dir() / f"base-{_SUITE}-{hashlib.sha256(_PACKAGES.encode()).hexdigest()[:8]}.tar"
    if place.exists():
        return place
    print(f"making a Debian {_SUITE} base image ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="tpulaunch-base-") as scratch:
        root = Path(scratch) / "root"
        # The suite's signature is checked where its keyring is installed; on other systems debootstrap says so itself.
        _run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root))
        for junk in (root / "var/cache/apt/archives", root / "var/lib/apt/lists", root / "usr/share/doc"):
            shutil.rmtree(junk, ignore_errors=True)
            junk.mkdir(parents=True)
        _run("tar", "--create", "--numeric-owner", f"--file={scratch}/base.tar", f"--directory={root}", ".")
        shutil.move(f"{scratch}/base.tar", place)
    return place


def _build(backend: str, base: Path, place: Path) -> None:
    # Storage of its own: neither the host's images nor its configuration play a part, and all goes at the end.
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="buildah-") as scratch:
        storage = (f"--root={scratch}/root", f"--runroot={scratch}/run", "--storage-driver=overlay")
        try:
            base_name = f"localhost/tpulaunch-test/base:{_SUITE}"
            container = _run("buildah", *storage, "from", "scratch").strip()
            _run("buildah", *storage, "add", "--quiet", container, str(base), "/")
            _run("buildah", *storage, "commit", "--quiet", container, base_name)
            # The authorities this host trusts are trusted in the build as well; the image keeps its own.
            passed = [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_dir() else []
            _run(
                "buildah", *storage, "bud", "--isolation=chroot", "--network=host", *passed,
                f"--build-arg=BASE_IMAGE={base_name}", f"--build-arg=BACKEND={backend}",
                f"--tag={name_of(backend)}", f"--file={PROJECT / 'Dockerfile'}", str(PROJECT),
            )  # fmt: skip
            part = place.with_suffix(".part")
            _run("buildah", *storage, "push", "--quiet", name_of(backend), f"docker-archive:{part}:{name_of(backend)}")
            part.rename(place)
        finally:
            subprocess.run(["umount", f"{scratch}/root/overlay"], check=False, capture_output=True)


def _run(*command: str) -> str:
    done = subprocess.run(["nice", "-n", "5", *command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-6000:]
        raise ClusterError(f"`{' '.join(command)}` ended with {done.returncode}:\n{tail}")
    return done.stdout
