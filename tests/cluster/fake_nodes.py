"""Nodes that only exist as objects: pods are scheduled onto them and never start. For clusters larger than this host.

`python -m tests.cluster.fake_nodes KUBECONFIG` plays their kubelets: it renews their leases, so that they stay ready,
and lets go of pods that are being deleted. It runs in the cluster's machine and ends with it.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.control_plane import NODE_GRACE_SECONDS
from tests.cluster.pools import CHIP, FAKE, Pool

_RENEWALS_PER_GRACE = 5


def create(api: Api, name: str, pool: Pool) -> None:
    """Makes the Node object, ready and with room for anything but chips."""
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, FAKE: "true", **pool.node_labels()}},
        "spec": {"taints": pool.node_taints()},
    }
    api.create(document)
    _renew(api, name)
    room = {"cpu": "240", "memory": "1440Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    if pool.chips:
        room[CHIP] = str(pool.chips)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "FakeNode",
        "message": "this node runs nothing",
        "lastHeartbeatTime": _now(),
        "lastTransitionTime": _now(),
    }
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    api.patch("Node", name, {"status": status}, subresource="status")


def keep(api: Api) -> None:
    """Plays the kubelets of all fake nodes, for ever."""
    while True:
        for node in api.list("Node", labels=f"{FAKE}=true"):
            name = node["metadata"]["name"]
            _renew(api, name)
            for pod in api.list("Pod", fields=f"spec.nodeName={name}"):
                if "deletionTimestamp" in pod["metadata"]:
                    api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0)
        time.sleep(NODE_GRACE_SECONDS / _RENEWALS_PER_GRACE)


def _renew(api: Api, name: str) -> None:
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": NODE_GRACE_SECONDS, "renewTime": _now(micro=True)},
    }
    api.apply(lease)


def _now(*, micro: bool = False) -> str:
    moment = datetime.datetime.now(datetime.UTC)
    return moment.isoformat(timespec="microseconds" if micro else "seconds").replace("+00:00", "Z")


if __name__ == "__main__":
    client = Api(Path(sys.argv[1]))
    while True:
        try:
            keep(client)
        except ApiError as error:  # an object went between two looks
            print(error, file=sys.stderr, flush=True)
