"""Builds every part of the cluster from the Go modules beside this file, once, into a cache.

A part is one directory under `modules/` with its own go.mod and go.sum, because the parts need different versions of
the same libraries. A built part is kept under a key made of those files, the flags and the compiler's version, so a
warm start only looks it up. Nothing prebuilt is downloaded.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.cluster.errors import ClusterError, UnfitHostError

MODULES = Path(__file__).parent / "modules"
_UNUSED_SECONDS = 14 * 24 * 3600


@dataclass(frozen=True)
class Part:
    """One Go module and what is made of it.

    `binaries` maps the name a program gets to its main package. `module` and `manifests` name files of the module
    that are applied to the cluster (CRDs, webhooks), as globs under the module's root.
    """

    name: str
    binaries: dict[str, str]
    module: str
    tags: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    stamps_version: bool = False


PARTS = (
    Part(
        "kubernetes",
        {
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "etcd": "go.etcd.io/etcd/server/v3",
        },
        module="k8s.io/kubernetes",
        stamps_version=True,
    ),
    Part(
        "containerd",
        {
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        module="github.com/containerd/containerd/v2",
        tags=("no_btrfs", "no_devmapper", "no_zfs", "no_aufs"),
    ),
    Part("coredns", {"coredns": "."}, module="github.com/coredns/coredns"),
    Part(
        "jobset",
        {"jobset": "sigs.k8s.io/jobset"},
        module="sigs.k8s.io/jobset",
        manifests=("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
    Part(
        "kueue",
        {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        module="sigs.k8s.io/kueue",
        manifests=(
            "config/components/crd/bases/*.yaml",
            "config/components/crd/patches/webhook_in_*.yaml",
            "config/components/webhook/manifests.yaml",
        ),
    ),
)


@dataclass(frozen=True)
class Built:
    """Where the parts are: `binaries` holds every program, `manifests/<part>/` what the modules bring to apply."""

    binaries: dict[str, Path]
    manifests: dict[str, Path]
    versions: dict[str, str]


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tpulaunch/cluster`, by default under `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "tpulaunch" / "cluster"


def version_of(part: Part) -> str:
    """The version of the part's main module, from its go.mod: `v1.36.3`."""
    text = (MODULES / part.name / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(part.module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ClusterError(f"{MODULES / part.name / 'go.mod'} does not require {part.module}")
    return found[1]


def build() -> Built:
    """Builds what the cache lacks and says where everything is. Cold about ten minutes on two cores, warm at once."""
    binaries: dict[str, Path] = {}
    manifests: dict[str, Path] = {}
    for part in PARTS:
        place = _build_part(part)
        binaries |= {name: place / "bin" / name for name in part.binaries}
        manifests[part.name] = place / "manifests"
    return Built(binaries, manifests, {part.name: version_of(part) for part in PARTS})


def _build_part(part: Part) -> Path:
    go = shutil.which("go")
    if go is None:
        raise UnfitHostError(
            "the test cluster is built from Go modules, and there is no `go` on PATH; install Go 1.26 or newer"
        )
    command = [go, "build", "-trimpath", "-ldflags", _linker_flags(part)]
    if part.tags:
        command += ["-tags", ",".join(part.tags)]
    source = MODULES / part.name
    place = cache_dir() / f"{part.name}-{_key(source, part, command[1:], go)}"
    with locked(cache_dir() / f"{part.name}.lock"):
        if not place.exists():
            print(f"building {part.name} {version_of(part)} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f"{part.name}-") as scratch:
                for name, package in part.binaries.items():
                    _go([*command, "-o", f"{scratch}/bin/{name}", package], source)
                _copy_manifests(part, go, source, Path(scratch) / "manifests")
                Path(scratch).rename(place)
                Path(scratch).mkdir()  # what TemporaryDirectory removes
    forget_unused(f"{part.name}-*", place)
    return place


def _linker_flags(part: Part) -> str:
    flags = "-s -w"
    if part.stamps_version:
        # A server that calls itself v0.0.0 is refused by clients that parse it, Kueue among them.
        version = version_of(part)
        major, minor, _ = version.removeprefix("v").split(".", 2)
        stamp = "k8s.io/component-base/version"
        flags += f" -X {stamp}.gitVersion={version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    return flags


def _key(source: Path, part: Part, flags: list[str], go: str) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((flags, part.binaries, part.manifests)).encode())
    if part.manifests:
        digest.update(b"manifests as JSON without prose")
    digest.update(_compiler(go))
    return digest.hexdigest()[:16]


@functools.cache
def _compiler(go: str) -> bytes:
    return subprocess.run([go, "version"], check=True, capture_output=True).stdout


def _go(command: list[str], source: Path) -> str:
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    done = subprocess.run(
        ["nice", "-n", "10", *command], cwd=source, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed in {source}:\n{done.stderr[-4000:]}")
    return done.stdout


def _copy_manifests(part: Part, go: str, source: Path, target: Path) -> None:
    target.mkdir()
    if not part.manifests:
        return
    module = Path(_go([go, "list", "-m", "-f", "{{.Dir}}", part.module], source).strip())
    for pattern in part.manifests:
        for path in module.glob(pattern):
            (target / path.parent.name).mkdir(exist_ok=True)
            # As JSON: reading half a megabyte of YAML takes seconds, and a warm start does it every time.
            documents = [_terse(document) for document in YAML(typ="safe").load_all(path.read_text()) if document]
            (target / path.parent.name / f"{path.stem}.json").write_text(json.dumps(documents))


def _terse(value: Any) -> Any:
    # The prose is most of a CRD's schema, and the API server works through it again and again while it starts.
    if isinstance(value, dict):
        return {
            key: _terse(each) for key, each in value.items() if not (key == "description" and isinstance(each, str))
        }
    return [_terse(each) for each in value] if isinstance(value, list) else value


def forget_unused(pattern: str, in_use: Path) -> None:
    """Removes cache entries nobody has used for two weeks; younger ones may belong to a cluster that still runs."""
    os.utime(in_use)
    for old in cache_dir().glob(pattern):
        if old != in_use and time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file, so that two sessions do not make the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
