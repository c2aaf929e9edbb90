"""One real node: a machine with its own network in which containerd and a kubelet run, as they would on a VM."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.control_plane import NODE_GRACE_SECONDS, Site, wait
from tests.cluster.machine import Machine
from tests.cluster.network import Network, plug_in_node
from tests.cluster.patience import IMPORT_SECONDS
from tests.cluster.state import NodeState, State
from tests.cluster.static_image import PAUSE

_CNI_PLUGINS = "/usr/lib/cni"
_SOCKET = "/run/containerd/containerd.sock"  # each node has a /run of its own


def boot(site: Site, known: State, wanted: NodeState) -> Machine:
    """Boots a node up to a containerd that answers and a kubelet that registers; earlier images are kept."""
    name, number, network = wanted.name, wanted.number, known.network
    machine = Machine.boot(name, ("pid", "mount", "net", "uts", "ipc"), inside=site.machine)
    place = site.directory / "nodes" / name
    (place / "cni").mkdir(parents=True, exist_ok=True)
    _prepare(machine, name)
    cgroups.remove_containers(cgroups.containers_of(place))
    cgroups.make(site.directory.name, name)
    plug_in_node(known.switch, machine, network, number)
    (place / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(network, number)))
    (place / "containerd.toml").write_text(_containerd(place))
    path = f"{site.binaries['containerd'].parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    log = site.logs / f"{name}.containerd.log"
    containerd = machine.start(
        [str(site.binaries["containerd"]), "--config", str(place / "containerd.toml")], log, {"PATH": path}
    )
    wait(
        lambda: _answers(machine, site.binaries["ctr"]),
        f"containerd of {name}",
        site,
        {f"{name}.containerd": containerd},
    )
    for archive in (str(site.directory / "busybox.tar"), *known.archives):
        import_images(site, wanted.name, machine, Path(archive))
    _start_kubelet(site, machine, known, wanted)
    return machine


def import_images(site: Site, name: str, machine: Machine, archive: Path) -> None:
    """Imports an archive's images under the names the kubelet asks for, once in a node's life."""
    identity = archive.stat()
    done = site.directory / "nodes" / name / "imported" / f"{identity.st_dev}-{identity.st_ino}-{identity.st_mtime_ns}"
    if done.exists():
        return
    machine.run(
        str(site.binaries["ctr"]),
        "--namespace=k8s.io",
        "images",
        "import",
        str(archive),
        timeout_seconds=IMPORT_SECONDS,
    )
    done.parent.mkdir(exist_ok=True)
    done.touch()


def _prepare(machine: Machine, name: str) -> None:
    commands = (
        f"hostname {name}",
        # What the parts write outside their own directories stays inside the machine.
        "mount -t tmpfs tmpfs /run",
        "mount -t tmpfs tmpfs /var/log",
        "mkdir -p /run/netns /var/log/containers",
        "mount --make-rshared /",
    )
    machine.run("sh", "-ec", "\n".join(commands))


def _answers(machine: Machine, ctr: Path) -> bool:
    done = subprocess.run([*machine.enter(), str(ctr), "version"], check=False, capture_output=True)
    return done.returncode == 0


def _cni(network: Network, number: int) -> dict[str, object]:
    first, last = network.pods(number)
    addresses = {"subnet": network.subnet, "rangeStart": first, "rangeEnd": last, "gateway": network.host}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _containerd(place: Path) -> str:
    file_system = subprocess.run(
        ["stat", "-f", "-c", "%T", place], check=True, capture_output=True, text=True
    ).stdout.strip()
    # The kernel refuses an overlay on an overlay, which is what /tmp is in most containers.
    snapshotter = "native" if file_system == "overlayfs" else "overlayfs"
    return f"""\
version = 3
root = "{place}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing"]

[grpc]
address = "{_SOCKET}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "{snapshotter}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE (containers, sandboxes) runc may not lower a score and dies in the attempt.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{_CNI_PLUGINS}"]
conf_dir = "{place}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{shutil.which("runc")}"
Root = "/run/runc"
"""


def _start_kubelet(site: Site, machine: Machine, known: State, wanted: NodeState) -> None:
    name, pool, network = wanted.name, wanted.pool, known.network
    place = site.directory / "nodes" / name
    address = network.node(wanted.number)
    identity = site.authority.issue(name, user=f"system:node:{name}", group="system:nodes", hosts=(address, name))
    kubeconfig = site.authority.kubeconfig(place / "kubeconfig", known.server, identity)
    (place / "resolv.conf").write_text(f"nameserver {network.host}\n")
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "x509": {"clientCAFile": str(site.authority.certificate)},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
        },
        "authorization": {"mode": "AlwaysAllow"},  # of those the authority signed
        "tlsCertFile": str(identity.certificate),
        "tlsPrivateKeyFile": str(identity.key),
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "clusterDNS": [network.host],
        "clusterDomain": "cluster.local",
        "resolvConf": str(place / "resolv.conf"),
        "podLogsDir": str(site.logs / "pods" / name),
        # Small, so that a test can make a log rotate.
        "containerLogMaxSize": "1Mi",
        "containerLogMonitorInterval": "3s",
        # Accounting of nested cgroups needs rights that a sandbox may lack; limits of containers are kept all the same.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{site.directory.name}/{name}",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "nodeLeaseDurationSeconds": NODE_GRACE_SECONDS,
        "nodeStatusUpdateFrequency": "5s",
        "registerWithTaints": pool.node_taints(),
        "readOnlyPort": 0,
        "enableDebuggingHandlers": True,
    }
    (place / "kubelet.json").write_text(json.dumps(configuration, indent=1))
    labels = ",".join(f"{key}={value}" for key, value in pool.node_labels().items())
    machine.start(
        [
            str(site.binaries["kubelet"]),
            f"--config={place / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={name}",
            f"--node-ip={address}",
            f"--node-labels={labels}",
            f"--root-dir={place / 'kubelet'}",
            f"--cert-dir={place / 'kubelet-certificates'}",
        ],
        site.logs / f"{name}.kubelet.log",
        {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )
