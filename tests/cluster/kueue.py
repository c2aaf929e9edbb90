"""Kueue objects for a test: a flavor per TPU generation, a quota, and a queue in the test's namespace."""

from __future__ import annotations

from tests.cluster.api import Object
from tests.cluster.pools import ACCELERATOR, CHIP

_API = "kueue.x-k8s.io/v1beta2"
OWNER_LABEL = "tpulaunch.dev/test-namespace"
# Wide enough never to be what a workload waits for; tests are about chips.
_PLENTY = {"cpu": "10k", "memory": "1000Ti", "ephemeral-storage": "1000Ti"}


def flavors() -> list[Object]:
    """One flavor per generation the default nodes have; the flavor puts its label into the pods' node selector."""
    accelerators = {"v6e": "tpu-v6e-slice", "v5e": "tpu-v5-lite-podslice"}
    return [
        {
            "apiVersion": _API,
            "kind": "ResourceFlavor",
            "metadata": {"name": name},
            "spec": {"nodeLabels": {ACCELERATOR: label}},
        }
        for name, label in accelerators.items()
    ]


def queues(namespace: str, name: str, chips: int) -> list[Object]:
    """A ClusterQueue with `chips` of each generation, and the LocalQueue `name` in the namespace that leads to it."""
    quotas = {**_PLENTY, CHIP: str(chips)}
    group = {
        "coveredResources": list(quotas),
        "flavors": [
            {
                "name": flavor["metadata"]["name"],
                "resources": [{"name": resource, "nominalQuota": quota} for resource, quota in quotas.items()],
            }
            for flavor in flavors()
        ],
    }
    cluster_queue = f"{namespace}-{name}"
    return [
        {
            "apiVersion": _API,
            "kind": "ClusterQueue",
            "metadata": {"name": cluster_queue, "labels": {OWNER_LABEL: namespace}},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": cluster_queue},
        },
    ]
