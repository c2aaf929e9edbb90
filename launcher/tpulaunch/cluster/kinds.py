"""The kinds of objects that are read or written, where the API server keeps them, and how kubectl spells them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        name: As in ``kind:``.
        plural: As in the URL.
        group: API group; empty for the core.
        versions: Versions this program can read, best first.
        is_namespaced: Whether its objects live in namespaces.
    """

    name: str
    plural: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    is_namespaced: bool = True

    @property
    def spelled(self) -> str:
        """The kind as ``-o name`` prints it: ``jobset.jobset.x-k8s.io``."""
        return f"{self.name.lower()}.{self.group}" if self.group else self.name.lower()

    def path(self, version: str, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["apis", self.group, version] if self.group else ["api", version]
        if self.is_namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, sub) if part]
        return "/" + "/".join(parts)


_KUEUE = ("v1beta2", "v1beta1")

JOBSET = Kind("JobSet", "jobsets", "jobset.x-k8s.io", ("v1alpha2",))
JOB = Kind("Job", "jobs", "batch")
POD = Kind("Pod", "pods")
NODE = Kind("Node", "nodes", is_namespaced=False)
EVENT = Kind("Event", "events")
NAMESPACE = Kind("Namespace", "namespaces", is_namespaced=False)
SERVICE_ACCOUNT = Kind("ServiceAccount", "serviceaccounts")
WORKLOAD = Kind("Workload", "workloads", "kueue.x-k8s.io", _KUEUE)
LOCAL_QUEUE = Kind("LocalQueue", "localqueues", "kueue.x-k8s.io", _KUEUE)
CLUSTER_QUEUE = Kind("ClusterQueue", "clusterqueues", "kueue.x-k8s.io", _KUEUE, is_namespaced=False)
RESOURCE_FLAVOR = Kind("ResourceFlavor", "resourceflavors", "kueue.x-k8s.io", _KUEUE, is_namespaced=False)
CRD = Kind("CustomResourceDefinition", "customresourcedefinitions", "apiextensions.k8s.io", is_namespaced=False)
DEPLOYMENT = Kind("Deployment", "deployments", "apps")

KINDS = MappingProxyType({kind.name: kind for kind in (JOBSET, JOB, POD, NODE, EVENT, WORKLOAD, LOCAL_QUEUE)})
