"""What was observed of a job, trimmed, as a file: recorded on a real cluster, read by the tests that need none.

``TPULAUNCH_RECORD=tests/cluster_ops/recordings`` makes the journeys write them anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tpulaunch.cluster.objects import LABEL_ACCELERATOR, Event, Object
from tpulaunch.cluster.progress import Progress
from tpulaunch.cluster.state import Observation

_NOISE = frozenset(
    (
        "annotations",
        "containerID",
        "controller",
        "env",
        "finalizers",
        "generateName",
        "generation",
        "hostIP",
        "hostIPs",
        "imageID",
        "lastProbeTime",
        "managedFields",
        "observedGeneration",
        "podIP",
        "podIPs",
        "ports",
        "podFailurePolicy",
        "qosClass",
        "resourceVersion",
        "rules",
        "securityContext",
        "selector",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
        "volumes",
    )
)
_KEPT_LABELS = ("jobset.sigs.k8s.io/", "batch.kubernetes.io/", "kueue.x-k8s.io/", "app.kubernetes.io/managed-by")
_NODE_STATUS = ("conditions", "allocatable")


def write_recording(path: Path, observed: Observation) -> None:
    """Write an observation, without what explains nothing."""
    data = {
        "jobset": _trim(observed.jobset),
        "jobs": [_trim(job) for job in observed.jobs],
        "pods": [_trim(pod) for pod in observed.pods],
        "workload": _trim(observed.workload),
        "nodes": None if observed.nodes is None else [_trim_node(node) for node in observed.nodes],
        "events": [{**asdict(event), "last_seen": event.last_seen.isoformat()} for event in observed.events],
        "local_queues": None if observed.local_queues is None else [_trim(queue) for queue in observed.local_queues],
        "cluster_queue": _trim(observed.cluster_queue),
        "progress": {pod: asdict(progress) for pod, progress in observed.progress.items()},
        "now": observed.now.isoformat() if observed.now else None,
    }
    path.write_text(_to_text(data))


def read_recording(path: Path) -> Observation:
    """Return the observation a file holds."""
    data = json.loads(path.read_text())
    lists = {key: None if data[key] is None else tuple(data[key]) for key in ("jobs", "pods", "nodes", "local_queues")}
    events = tuple(
        Event(**{**event, "last_seen": datetime.fromisoformat(event["last_seen"])}) for event in data["events"]
    )
    observed = Observation(
        jobset=data["jobset"],
        workload=data["workload"],
        cluster_queue=data["cluster_queue"],
        events=events,
        progress={pod: Progress(**said) for pod, said in data["progress"].items()},
        now=datetime.fromisoformat(data["now"]) if data["now"] else None,
    )
    return replace(observed, **lists)  # type: ignore[arg-type]


def _to_text(data: dict[str, Any]) -> str:
    """One object a line: short files whose changes can still be read."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            items = ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value)
            parts.append(f' "{key}": [\n{items}\n ]')
        else:
            parts.append(f' "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _trim(obj: Object | None) -> Any:
    if obj is None:
        return None

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: {k: v for k, v in item.items() if k.startswith(_KEPT_LABELS)} if key == "labels" else walk(item)
                for key, item in value.items()
                if key not in _NOISE
            }
        return [walk(item) for item in value] if isinstance(value, list) else value

    return walk(obj)


def _trim_node(node: Object) -> Any:
    labels = {k: v for k, v in node["metadata"].get("labels", {}).items() if k.startswith("cloud.google.com/")}
    status = {key: node["status"].get(key) for key in _NODE_STATUS}
    trimmed = {
        "kind": "Node",
        "metadata": {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], "labels": labels},
        "spec": {key: node["spec"][key] for key in ("taints", "unschedulable") if key in node["spec"]},
        "status": status,
    }
    assert LABEL_ACCELERATOR in labels or not labels
    return trimmed
