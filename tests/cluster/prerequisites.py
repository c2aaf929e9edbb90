"""What the cluster needs from this host besides Go: rights, and a few Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.errors import UnfitHostError

# A file that shows the package is there -> the package.
_PACKAGES = {
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "unshare": "util-linux",
    "tini": "tini",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
_INOTIFY_INSTANCES = 1024
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing_packages() -> list[str]:
    """Debian packages whose programs are not found."""
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    absent = (
        package
        for program, package in _PACKAGES.items()
        if not (Path(program).exists() if program.startswith("/") else shutil.which(program, path=path))
    )
    return sorted(set(absent))


def _allow_watches() -> None:
    # A cluster of five nodes takes about 60 inotify instances; most systems allow a user 128 in all, and components
    # that get none end with "too many open files". What a system allows beyond is never lowered.
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < _INOTIFY_INSTANCES:
        try:
            limit.write_text(str(_INOTIFY_INSTANCES))
        except OSError as error:
            print(f"{limit} stays at {limit.read_text().strip()}: {error}", file=sys.stderr)


def require_programs(*, install: bool = True) -> None:
    """Checks rights and programs; as root on Debian or Ubuntu, installs the packages that are missing.

    Raises `UnfitHostError` with the command to run otherwise.
    """
    if os.geteuid() != 0:
        raise UnfitHostError(
            "the test cluster runs kubelets and needs root; or name a cluster by TPULAUNCH_TEST_KUBECONFIG"
        )
    _allow_watches()
    absent = missing_packages()
    if not absent:
        return
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent]
    if not install or shutil.which("apt-get") is None:
        raise UnfitHostError(f"the test cluster needs packages that are not installed; run: {' '.join(command)}")
    print(f"installing {', '.join(absent)} ...", file=sys.stderr, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["apt-get", "update", "-qq"], command):
        done = subprocess.run(step, check=False, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise UnfitHostError(f"`{' '.join(step)}` failed: {done.stderr.strip()[-2000:]}")
