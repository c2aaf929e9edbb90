"""Judges objects by the schemas of JobSet, Kueue and Kubernetes, taken from their Go modules.

The API server prunes unknown fields, or refuses them under strict validation; a misspelt one is a fault here.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

MODULES = Path(__file__).parent / "modules"
_OPENAPI = "api/openapi-spec/v3"
_KUBERNETES_FILES = {
    "Job": (f"{_OPENAPI}/apis__batch__v1_openapi.json", "io.k8s.api.batch.v1.Job"),
    "Pod": (f"{_OPENAPI}/api__v1_openapi.json", "io.k8s.api.core.v1.Pod"),
    "Namespace": (f"{_OPENAPI}/api__v1_openapi.json", "io.k8s.api.core.v1.Namespace"),
    "ServiceAccount": (f"{_OPENAPI}/api__v1_openapi.json", "io.k8s.api.core.v1.ServiceAccount"),
    "Role": (f"{_OPENAPI}/apis__rbac.authorization.k8s.io__v1_openapi.json", "io.k8s.api.rbac.v1.Role"),
    "RoleBinding": (f"{_OPENAPI}/apis__rbac.authorization.k8s.io__v1_openapi.json", "io.k8s.api.rbac.v1.RoleBinding"),
    "ClusterRole": (f"{_OPENAPI}/apis__rbac.authorization.k8s.io__v1_openapi.json", "io.k8s.api.rbac.v1.ClusterRole"),
    "ClusterRoleBinding": (
        f"{_OPENAPI}/apis__rbac.authorization.k8s.io__v1_openapi.json",
        "io.k8s.api.rbac.v1.ClusterRoleBinding",
    ),
}


@cache
def module_directory(module: str) -> Path:
    """Return where a pinned module lies, downloaded if it is not there yet."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd=MODULES, capture_output=True, text=True, check=True
    )
    return Path(json.loads(done.stdout)["Dir"])


def faults_of(value: dict[str, Any]) -> list[str]:
    """Return every fault of an object by the schema of its kind, each with its path."""
    kind = value["kind"]
    group, _, version = value["apiVersion"].partition("/")
    schema = kubernetes_schema(kind) if kind in _KUBERNETES_FILES else custom_schema(group, version, kind)
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


@cache
def custom_schema(group: str, version: str, kind: str) -> dict[str, Any]:
    """Return the strict schema of a custom resource."""
    module = {"jobset.x-k8s.io": "sigs.k8s.io/jobset", "kueue.x-k8s.io": "sigs.k8s.io/kueue"}[group]
    for path in sorted((module_directory(module) / "config/components/crd/bases").glob(f"{group}_*.yaml")):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)  # 9,000 lines: the pure reader takes half a minute
        if definition["spec"]["names"]["kind"] == kind:
            served = {entry["name"]: entry["schema"]["openAPIV3Schema"] for entry in definition["spec"]["versions"]}
            schema = _strict(served[version])
            schema["properties"]["metadata"] = _object_metadata()
            return schema
    raise LookupError(f"{module} defines no {kind}")


@cache
def kubernetes_schema(kind: str) -> dict[str, Any]:
    """Return the strict schema of a kind of Kubernetes' own, with what it refers to."""
    file, name = _KUBERNETES_FILES[kind]
    document = json.loads((module_directory("k8s.io/kubernetes") / file).read_text())
    schemas = {key: _strict(schema) for key, schema in document["components"]["schemas"].items()}
    return {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}


def _object_metadata() -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    properties = {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": texts, "annotations": texts}
    return {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}


def _is_python(pattern: object) -> bool:
    """Say whether Python reads a pattern; Go's may have flags in their middle. A property called "pattern" is none."""
    try:
        return not isinstance(pattern, str) or bool(re.compile(pattern))
    except re.error:
        return False


def _strict(schema: Any) -> Any:
    """Return a schema in which an object with listed properties has no others."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items() if key != "pattern" or _is_python(value)}
    closed = isinstance(schema.get("properties"), dict) and "type" in schema
    if closed and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict["additionalProperties"] = False
    return strict
