"""Objects as the API server shows them: defaults, plus only what a test is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tpulaunch.cluster.objects import Event, Object

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def condition(kind: str, status: str = "True", reason: str = "Because", message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T11:59:00Z",
    }


def make_jobset(
    *,
    name: str = "tiny",
    slices: int = 2,
    hosts: int = 2,
    suspend: bool | None = None,
    queue: str | None = None,
    conditions: tuple[dict[str, Any], ...] = (),
    ready: int = 0,
    **status: Any,
) -> Object:
    labels = {"app.kubernetes.io/managed-by": "tpulaunch", **({"kueue.x-k8s.io/queue-name": queue} if queue else {})}
    spec: dict[str, Any] = {
        "failurePolicy": {"maxRestarts": 3},
        "replicatedJobs": [
            {
                "name": "slice",
                "replicas": slices,
                "template": {"spec": {"parallelism": hosts, "completions": hosts, "template": {"spec": {}}}},
            }
        ],
    }
    if suspend is not None:
        spec["suspend"] = suspend
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": "js-1",
            "labels": labels,
            "creationTimestamp": "2026-03-01T11:50:00Z",
        },
        "spec": spec,
        "status": {
            "conditions": list(conditions),
            "replicatedJobsStatus": [{"name": "slice", "ready": ready}],
            **status,
        },
    }


def make_pod(
    slice_index: int = 0,
    host: int = 0,
    *,
    attempt: int = 0,
    phase: str = "Running",
    node: str | None = "node-a",
    conditions: tuple[dict[str, Any], ...] = (),
    containers: tuple[dict[str, Any], ...] = (),
    **extra: Any,
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"tiny-slice-{slice_index}-{host}-abcd{attempt}",
            "namespace": "ml",
            "uid": f"pod-{slice_index}-{host}-{attempt}",
            "creationTimestamp": f"2026-03-01T11:5{attempt}:00Z",
            "labels": {
                "jobset.sigs.k8s.io/jobset-name": "tiny",
                "jobset.sigs.k8s.io/job-index": str(slice_index),
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
                "batch.kubernetes.io/job-completion-index": str(host),
            },
            **extra.pop("metadata", {}),
        },
        "spec": {"containers": [{"name": "worker", "image": "image"}], **({"nodeName": node} if node else {})},
        "status": {"phase": phase, "conditions": list(conditions), "containerStatuses": list(containers), **extra},
    }


def terminated(
    exit_code: int, *, reason: str = "Error", message: str = "", at: str = "2026-03-01T11:58:00Z"
) -> dict[str, Any]:
    state = {"exitCode": exit_code, "reason": reason, "message": message, "finishedAt": at}
    return {"name": "worker", "restartCount": 0, "state": {"terminated": state}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"name": "worker", "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}


def make_event(obj: Object, reason: str, message: str) -> Event:
    metadata = obj["metadata"]
    return Event(
        obj["kind"], metadata["name"], metadata["uid"], reason, message, is_warning=True, last_seen=NOW, source="test"
    )
