"""etcd, API server, controller manager and scheduler, run in the cluster's machine on this host's network."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import urllib3.exceptions

from tests.cluster.api import Api, ApiError
from tests.cluster.errors import ClusterError
from tests.cluster.machine import Machine
from tests.cluster.patience import Patience
from tests.cluster.pki import ADMINISTRATORS, Authority

# How soon a silent node is found dead, and its pods deleted. The first is Kubernetes' own default, which a kubelet
# keeps on a busy machine too; GKE then waits 300 s. The order is the same.
NODE_GRACE_SECONDS = 40
EVICTION_SECONDS = 10


@dataclass(frozen=True)
class Site:
    """Where a cluster lives: its directory, programs, machine, certificates and the address it listens on."""

    directory: Path
    binaries: dict[str, Path]
    machine: Machine
    authority: Authority
    address: str

    @property
    def logs(self) -> Path:
        """Every component's output."""
        return self.directory / "logs"

    def start(self, name: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts one of the built programs in the cluster's machine."""
        return self.machine.start([str(self.binaries[name]), *arguments], self.logs / f"{name}.log", environment)


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports nobody listens on at the moment, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((address, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def start_api_server(site: Site) -> Api:
    """Starts etcd and the API server and returns an administrator's client once it serves; ready in about 3 s."""
    client_port, peer_port = free_ports(2)
    etcd = site.start(
        "etcd",
        f"--data-dir={site.directory / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client_port}",
        f"--advertise-client-urls=http://127.0.0.1:{client_port}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    [port] = free_ports(1, site.address)
    server = f"https://{site.address}:{port}"
    serving = site.authority.issue(
        "kube-apiserver", user="kube-apiserver", hosts=(site.address, "localhost", "kubernetes.default.svc")
    )
    to_kubelets = site.authority.issue("kubelet-client", user="kube-apiserver", group=ADMINISTRATORS)
    accounts = site.authority.issue("service-accounts", user="service-accounts")
    kubeconfig = site.directory / "kubeconfig"
    administrator = site.authority.issue("administrator", user="tpulaunch-test", group=ADMINISTRATORS)
    site.authority.kubeconfig(kubeconfig, server, administrator)
    api_server = site.start(
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{client_port}",
        f"--bind-address={site.address}",
        f"--advertise-address={site.address}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={site.authority.certificate}",
        f"--kubelet-certificate-authority={site.authority.certificate}",
        f"--kubelet-client-certificate={to_kubelets.certificate}",
        f"--kubelet-client-key={to_kubelets.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts.key}",
        f"--service-account-signing-key-file={accounts.key}",
        "--service-cluster-ip-range=198.18.0.0/24",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--default-not-ready-toleration-seconds={EVICTION_SECONDS}",
        f"--default-unreachable-toleration-seconds={EVICTION_SECONDS}",
    )
    api = Api(kubeconfig)
    wait_until_ready(api, "kube-apiserver", site, {"etcd": etcd, "kube-apiserver": api_server})
    return api


def wait_until_ready(api: Api, name: str, site: Site, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Returns when the API server says that it is ready."""
    wait(lambda: bool(api.request("GET", "/readyz")), name, site, processes)


def wait(
    condition: Callable[[], bool],
    what: str,
    site: Site,
    processes: dict[str, subprocess.Popen[bytes]],
) -> None:
    """Returns when the condition holds; a process of `processes` that ends meanwhile is told with its last lines.

    An API server that does not answer yet is one more thing to wait for. Patience lasts while any component writes to
    its log.
    """
    patience = Patience()
    while not _holds(condition):
        patience.note(sorted((path.name, path.stat().st_size) for path in site.logs.glob("*.log")))
        for name, process in processes.items():
            if process.poll() is not None:
                lines = (site.logs / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
                raise ClusterError(f"{name} ended with {process.returncode} while starting:\n" + "\n".join(lines))
        if not patience.remaining_seconds:
            raise ClusterError(f"{what} was not ready, and {patience.words}; its log is in {site.logs}")
        time.sleep(0.05)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (ApiError, urllib3.exceptions.HTTPError):
        return False


def start_controllers(site: Site, kubeconfig: Path) -> None:
    """Starts the controller manager and the scheduler; neither serves anything."""
    accounts = site.directory / "pki" / "service-accounts.key"
    common = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
    site.start(
        "kube-controller-manager",
        *common,
        f"--service-account-private-key-file={accounts}",
        f"--root-ca-file={site.authority.certificate}",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--node-monitor-period=2s",
    )
    site.start("kube-scheduler", *common)
