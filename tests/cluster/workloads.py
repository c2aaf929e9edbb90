"""Builders of what tests put on the cluster: TPU pods and JobSets with only what the test is about."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Object
from tests.cluster.pools import ACCELERATOR, CHIP, TOPOLOGY

TOLERATION = {"key": CHIP, "operator": "Exists", "effect": "NoSchedule"}


def container(image: str, script: str, chips: int = 4, **fields: Any) -> Object:
    """A container `main` that runs a shell script and asks for chips."""
    return {
        "name": "main",
        "image": image,
        "command": ["sh", "-ec", script],
        "resources": {"limits": {CHIP: str(chips)}} if chips else {},
        **fields,
    }


def pod(
    name: str,
    *containers: Object,
    accelerator: str = "tpu-v6e-slice",
    topology: str = "2x4",
    tolerations: tuple[Object, ...] = (TOLERATION,),
    **fields: Any,
) -> Object:
    """A pod that selects nodes of one TPU shape."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {ACCELERATOR: accelerator, TOPOLOGY: topology},
            "tolerations": list(tolerations),
            "containers": list(containers),
            **fields,
        },
    }


def jobset(
    name: str, template: Object, slices: int = 2, hosts: int = 2, *, queue: str = "", exclusive: bool = True
) -> Object:
    """A JobSet of `slices` Jobs with `hosts` pods each, made like the pod `template`; one Job per node pool."""
    metadata: Object = {"name": name}
    if exclusive:
        metadata["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": template["spec"]},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": job}}]},
    }
