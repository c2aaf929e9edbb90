"""Manifest text to a list of problems: reads the YAML back and holds every leaf of it against the plan.

The wanted object is laid out here a second time, from the plan and not from the template, so that a slip of either is
seen. Nothing is sampled: what the text lacks, adds or says differently is a problem with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tpulaunch.errors import Problem
from tpulaunch.plan import JobPlan
from tpulaunch.plan.values import (
    AnnotationFile,
    Claim,
    ContainerPlan,
    EmptyDir,
    FromField,
    FromSecret,
    Fuse,
    PodFailureRule,
    Toleration,
    Variable,
    Volume,
)

_MISSING = object()


def check(text: str, plan: JobPlan) -> list[Problem]:
    """Return every difference between the one document of a text and the plan; none when the text may be sent."""
    yaml = YAML(typ="safe", pure=True)
    try:
        documents = list(yaml.load_all(text))
    except YAMLError as error:
        return [Problem("document", str(error).replace("\n", " "), "one YAML document")]
    if len(documents) != 1:
        return [Problem("document", f"{len(documents)} documents", "one YAML document")]
    return list(differences(documents[0], wanted_object(plan)))


def differences(found: Any, wanted: Any, path: str = "") -> Iterator[Problem]:
    """Yield the differences between two trees of mappings, lists and scalars; 1 and true and "1" all differ."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            yield from differences(found.get(key, _MISSING), wanted.get(key, _MISSING), _step(path, key))
    elif isinstance(found, list) and isinstance(wanted, list):
        for index in range(max(len(found), len(wanted))):
            yield from differences(_item(found, index), _item(wanted, index), f"{path}[{index}]")
    elif type(found) is not type(wanted) or found != wanted:
        yield Problem(path or "document", _shown(found), _shown(wanted))


def wanted_object(plan: JobPlan) -> dict[str, Any]:
    """Return the JobSet that a plan means, as plain values."""
    metadata = {"name": plan.name, "labels": dict(plan.labels), "annotations": dict(plan.annotations)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata | _given(namespace=plan.namespace),
        "spec": {
            "ttlSecondsAfterFinished": plan.ttl_seconds_after_finished,
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": plan.name},
            "failurePolicy": {
                "maxRestarts": plan.restarts,
                "rules": [
                    {
                        "name": rule.name,
                        "action": rule.action,
                        "onJobFailureReasons": [rule.reason],
                        "onJobFailureMessagePatterns": [rule.message_pattern],
                    }
                    for rule in plan.jobset_rules
                ],
            },
            "replicatedJobs": [
                {"name": plan.replicated_job, "replicas": plan.num_slices, "template": {"spec": _job(plan)}}
            ],
        },
    }


def _job(plan: JobPlan) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "parallelism": plan.hosts_per_slice,
        "completions": plan.hosts_per_slice,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_pod_rule(rule) for rule in plan.pod_rules]},
        "template": {
            "metadata": {
                "labels": dict(plan.pod_labels),
                "annotations": {**dict(plan.pod_annotations), plan.spec_annotation: plan.spec_text},
            },
            "spec": _pod(plan),
        },
    } | _given(activeDeadlineSeconds=plan.active_deadline_seconds)


def _pod_rule(rule: PodFailureRule) -> dict[str, Any]:
    if rule.condition is not None:
        return {"action": "FailJob", "onPodConditions": [{"type": rule.condition, "status": "True"}]}
    codes = {"containerName": rule.container, "operator": "NotIn", "values": list(rule.not_in_exit_codes)}
    return {"action": "FailJob", "onExitCodes": codes}


def _pod(plan: JobPlan) -> dict[str, Any]:
    user = plan.security.user
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": plan.grace_seconds,
        "automountServiceAccountToken": plan.mount_token,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": user != 0,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": dict(plan.node_selector),
        "tolerations": [_toleration(toleration) for toleration in plan.tolerations],
        "containers": [_container(plan, plan.container)],
        "volumes": [_volume(volume) for volume in plan.volumes],
    }
    pod |= _given(serviceAccountName=plan.service_account, priorityClassName=plan.priority_class)
    if plan.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if plan.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in plan.image_pull_secrets]
    return pod


def _toleration(toleration: Toleration) -> dict[str, Any]:
    taint = {"key": toleration.key, "operator": toleration.operator, "effect": toleration.effect}
    return taint | _given(value=toleration.value)


def _container(plan: JobPlan, container: ContainerPlan) -> dict[str, Any]:
    resources = {"google.com/tpu": str(container.chips), "memory": container.memory}
    security = {
        "privileged": plan.security.privileged,
        "allowPrivilegeEscalation": plan.security.privileged,
        "readOnlyRootFilesystem": plan.security.read_only_root,
    }
    wanted = {
        "name": container.name,
        "image": container.image,
        "command": list(container.command),
        "env": [_variable(variable) for variable in container.env],
        "resources": {"requests": resources, "limits": resources},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security if plan.security.privileged else {**security, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": mount.name, "mountPath": mount.path} | ({"readOnly": True} if mount.read_only else {})
            for mount in container.mounts
        ],
    }
    if container.ports:
        wanted["ports"] = [{"name": port.name, "containerPort": port.number} for port in container.ports]
    return wanted


def _variable(variable: Variable) -> dict[str, Any]:
    if isinstance(variable, FromField):
        return {"name": variable.name, "valueFrom": {"fieldRef": {"fieldPath": variable.field_path}}}
    if isinstance(variable, FromSecret):
        reference = {"name": variable.secret, "key": variable.key}
        return {"name": variable.name, "valueFrom": {"secretKeyRef": reference}}
    return {"name": variable.name, "value": variable.value}


def _volume(volume: Volume) -> dict[str, Any]:
    match volume:
        case AnnotationFile():
            item = {"path": volume.file, "fieldRef": {"fieldPath": volume.field_path}}
            source: dict[str, Any] = {"downwardAPI": {"items": [item]}}
        case Claim():
            source = {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
        case Fuse():
            attributes = dict(volume.attributes)
            csi = {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": volume.read_only, "volumeAttributes": attributes}
            source = {"csi": csi}
        case EmptyDir():
            source = {"emptyDir": _given(medium=volume.medium, sizeLimit=volume.size_limit)}
    return {"name": volume.name, **source}


def _given(**values: object) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _item(items: Sequence[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def _step(path: str, key: object) -> str:
    plain = str(key).replace("_", "").replace("-", "").isalnum()
    return f"{path}.{key}".lstrip(".") if plain else f"{path}[{json.dumps(str(key))}]"


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    shown = json.dumps(value, ensure_ascii=True, default=str)
    return shown if len(shown) <= 120 else f"{shown[:117]}..."
