"""The Kubernetes API in plain dicts: get, list, apply, patch, delete, and waiting by watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
import urllib3.exceptions

from tests.cluster.errors import ClusterError
from tests.cluster.patience import REQUEST_SECONDS, Patience

Object = dict[str, Any]
JsonPatch = Object | list[Object]
FIELD_MANAGER = "tpulaunch-test-cluster"


class ApiError(ClusterError):
    """The API server refused; `status` is the HTTP code, `reason` the API's own (`NotFound`, `Forbidden`, ...)."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        if not isinstance(answer, dict):
            answer = {}
        self.status = status
        self.reason = str(answer.get("reason", ""))
        super().__init__(f"{method} {path}: {status} {answer.get('message') or body.decode(errors='replace')[:500]}")


_CORE = "/api/v1"
# kind -> (group version, plural, namespaced)
_KINDS: dict[str, tuple[str, str, bool]] = {
    **{
        kind: (_CORE, plural, namespaced)
        for kind, plural, namespaced in (
            ("Namespace", "namespaces", False),
            ("Node", "nodes", False),
            ("Pod", "pods", True),
            ("Event", "events", True),
            ("Service", "services", True),
            ("ServiceAccount", "serviceaccounts", True),
            ("ConfigMap", "configmaps", True),
            ("Secret", "secrets", True),
            ("ResourceQuota", "resourcequotas", True),
            ("PersistentVolume", "persistentvolumes", False),
            ("PersistentVolumeClaim", "persistentvolumeclaims", True),
        )
    },
    "Job": ("/apis/batch/v1", "jobs", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    **{
        kind: ("/apis/admissionregistration.k8s.io/v1", plural, False)
        for kind, plural in (
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
            ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        )
    },
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", True),
    **{
        kind: ("/apis/kueue.x-k8s.io/v1beta2", plural, namespaced)
        for kind, plural, namespaced in (
            ("ResourceFlavor", "resourceflavors", False),
            ("ClusterQueue", "clusterqueues", False),
            ("LocalQueue", "localqueues", True),
            ("Workload", "workloads", True),
            ("WorkloadPriorityClass", "workloadpriorityclasses", False),
            ("Topology", "topologies", False),
            ("AdmissionCheck", "admissionchecks", False),
        )
    },
}
DUMPED = ("JobSet", "Job", "Pod", "Workload", "LocalQueue", "Service", "EndpointSlice", "Event")


class Api:
    """One identity at one API server."""

    def __init__(self, kubeconfig: Path, context: str | None = None) -> None:
        from kubernetes import client, config

        configuration = client.Configuration()
        config.load_kube_config(
            str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
        )
        configuration.retries = False
        self.client = client.ApiClient(configuration)
        self._host = configuration.host
        self._pool: urllib3.PoolManager = self.client.rest_client.pool_manager
        self._token = configuration.get_api_key_with_prefix

    # -- one request -------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: Object | list[Object] | None = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
    ) -> Any:
        """Sends one request and returns the parsed answer; raises `ApiError` for anything but success.

        A question that the server puts off (429: its storage of a new kind is not ready, or it is busy) is asked again
        when it says, as every client of Kubernetes does.
        """
        with_query = f"{path}?{urlencode(query)}" if query else path
        encoded = None if body is None else json.dumps(body).encode()
        patience = Patience()
        while True:
            response = self._pool.request(
                method,
                self._host + with_query,
                body=encoded,
                headers=self._headers(content_type, accept),
                timeout=REQUEST_SECONDS,
            )
            if method != "GET" or response.status != 429 or not patience.remaining_seconds:
                break
            time.sleep(float(response.headers.get("Retry-After", 1)))
        if response.status >= 300:
            raise ApiError(method, with_query, response.status, response.data)
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return json.loads(response.data) if is_json else response.data.decode(errors="replace")

    def _headers(self, content_type: str, accept: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content_type}
        token = self._token("authorization") or self._token("BearerToken")
        return headers | ({"Authorization": token} if token else {})

    # -- objects -----------------------------------------------------------------------------------------------------

    @staticmethod
    def path(kind: str, name: str | None = None, namespace: str | None = None) -> str:
        """The URL path of an object or, without a name, of a collection; without a namespace, of all namespaces."""
        version, plural, namespaced = _KINDS[kind]
        scope = f"/namespaces/{quote(namespace)}" if namespaced and namespace else ""
        return f"{version}{scope}/{plural}" + (f"/{quote(name)}" if name else "")

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object; `ApiError` with status 404 when it is not there."""
        found: Object = self.request("GET", self.path(kind, name, namespace))
        return found

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when it is not there."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Object]:
        """The objects of a kind that match the selectors."""
        query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        answer = self.request("GET", self.path(kind, None, namespace), query=query)
        return [{"kind": kind, **item} for item in answer["items"]]

    def apply(self, document: Object, namespace: str | None = None) -> Object:
        """Server-side apply, conflicts forced; returns the object as the server has it."""
        metadata = document["metadata"]
        namespace = namespace or metadata.get("namespace")
        applied: Object = self.request(
            "PATCH",
            self.path(document["kind"], metadata["name"], namespace),
            document,
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            "application/apply-patch+yaml",
        )
        return applied

    def create(self, document: Object, namespace: str | None = None, *, dry_run: bool = False) -> Object:
        """Creates the object; with `dry_run` only admission is run. Returns it as the server has it."""
        namespace = namespace or document["metadata"].get("namespace")
        query = {"dryRun": "All"} if dry_run else None
        created: Object = self.request("POST", self.path(document["kind"], None, namespace), document, query)
        return created

    def patch(
        self, kind: str, name: str, change: JsonPatch, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """A JSON merge patch (dict) or a JSON patch (list), of a subresource such as `status` if named."""
        content_type = "application/json-patch+json" if isinstance(change, list) else "application/merge-patch+json"
        path = self.path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        changed: Object = self.request("PATCH", path, change, content_type=content_type)
        return changed

    def delete(self, kind: str, name: str, namespace: str | None = None, *, grace_seconds: int | None = None) -> None:
        """Deletes the object; what is gone already is fine."""
        body: Object = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", self.path(kind, name, namespace), body)
        except ApiError as error:
            if error.status != 404:
                raise

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait_for(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        condition: str | None = None,
        until: Callable[[Object], bool] | None = None,
        gone: bool = False,
    ) -> Object:
        """Waits until the object has the condition with status True, or `until(object)` holds, or it is gone.

        Returns the object as last seen. When it stays as it is for too long, `ClusterError` tells its last status.
        """

        def holds(seen: Object) -> bool:
            if condition is not None:
                return has_condition(seen, condition)
            return until is not None and until(seen)

        patience = Patience()
        last: Object = {}
        for event, seen in self._changes(kind, namespace, f"metadata.name={name}", patience):
            patience.note((event, seen.get("metadata", {}).get("resourceVersion")))
            if event in {"ABSENT", "DELETED"}:
                if gone:
                    return seen or last
                continue
            last = seen
            if not gone and holds(seen):
                return seen
        wish = "gone" if gone else condition or "as wanted"
        where = f"{namespace}/{name}" if namespace else name
        raise ClusterError(
            f"{kind} {where} was not {wish}, and {patience.words}; "
            + (f"its status: {json.dumps(last.get('status'))[:3000]}" if last else "it was never there")
        )

    def _changes(
        self, kind: str, namespace: str | None, fields: str, patience: Patience
    ) -> Iterator[tuple[str, Object]]:
        """Yields (`ABSENT`|`ADDED`|`MODIFIED`|`DELETED`, object) until patience has run out."""
        path = self.path(kind, None, namespace)
        while patience.remaining_seconds:
            answer = self.request("GET", path, query={"fieldSelector": fields})
            for item in answer["items"]:
                yield "ADDED", item
            if not answer["items"]:
                yield "ABSENT", {}
            yield from self._watch(path, fields, answer["metadata"]["resourceVersion"], patience)

    def _watch(self, path: str, fields: str, version: str, patience: Patience) -> Iterator[tuple[str, Object]]:
        remaining = patience.remaining_seconds
        if not remaining:
            return
        query = {
            "watch": "1",
            "fieldSelector": fields,
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(remaining))),
        }
        response = self._pool.request(
            "GET",
            f"{self._host}{path}?{urlencode(query)}",
            headers=self._headers("application/json"),
            preload_content=False,
            timeout=urllib3.Timeout(connect=REQUEST_SECONDS, read=remaining),
        )
        try:
            rest = b""
            for chunk in response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # the version is too old: list again
                        return
                    yield event["type"], event["object"]
        except (urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ProtocolError):
            return
        finally:
            response.close()

    # -- looking -----------------------------------------------------------------------------------------------------

    def logs(self, pod: str, namespace: str, container: str | None = None, *, previous: bool = False) -> str:
        """What a container has printed so far."""
        query = {"container": container} if container else {}
        if previous:
            query["previous"] = "true"
        text = self.request("GET", self.path("Pod", pod, namespace) + "/log", query=query)
        return text if isinstance(text, str) else json.dumps(text)

    def dump(self, namespace: str, directory: Path) -> None:
        """Writes the namespace's objects, events and pod logs as files."""
        directory.mkdir(parents=True, exist_ok=True)
        for kind in DUMPED:
            try:
                found = self.list(kind, namespace)
            except ApiError as error:
                found = [{"error": str(error)}]
            (directory / f"{kind.lower()}s.json").write_text(json.dumps(found, indent=1))
        for pod in self.list("Pod", namespace):
            for container in pod["spec"]["containers"]:
                name = pod["metadata"]["name"]
                try:
                    text = self.logs(name, namespace, container["name"])
                except ApiError as error:
                    text = str(error)
                (directory / f"{name}.{container['name']}.log").write_text(text)


def has_condition(seen: Object, kind: str, status: str = "True") -> bool:
    """Whether the object carries the condition with that status."""
    conditions = seen.get("status", {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == status for each in conditions)
