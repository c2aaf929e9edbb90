"""What a TPU cluster has beyond Kubernetes: JobSet, Kueue, DNS for pods, and GKE's injection of TPU variables.

CRDs and webhooks are those the modules bring; only the webhooks' addresses are turned to this host.
"""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import urllib3.exceptions
from ruamel.yaml import YAML

from tests.cluster.api import Api, ApiError, Object, has_condition
from tests.cluster.control_plane import Site, free_ports, wait

POLICIES = Path(__file__).parent / "policies"
# The only kinds Kueue is to admit or guard here; its other webhooks would wait for CRDs that are not installed.
_KUEUE_WEBHOOKS = ("jobset", "workload", "clusterqueue", "cohort", "resourceflavor")


def _policies() -> list[Object]:
    yaml = YAML(typ="safe")
    return [document for path in sorted(POLICIES.glob("*.yaml")) for document in yaml.load_all(path.read_text())]


def _read(path: Path) -> list[Object]:
    found: list[Object] = json.loads(path.read_text())
    return found


def install(site: Site, api: Api, manifests: dict[str, Path], kubeconfig: Path) -> None:
    """Starts the add-ons and returns when each serves."""
    ports = dict(zip(("jobset", "jobset-health", "kueue", "kueue-health"), free_ports(4), strict=True))
    _create_all(api, _policies())
    definitions = _definitions(manifests, _client_config(site, ports["kueue"], "/convert"))
    _create_all(api, definitions)
    # A controller that starts before its kinds are served gives up.
    wait(lambda: not unserved(api, definitions), "the API of JobSet and Kueue", site, {})
    processes = {
        "jobset": _start_jobset(site, kubeconfig, ports),
        "kueue": _start_kueue(site, kubeconfig, ports),
        "coredns": _start_coredns(site, kubeconfig),
    }
    for name in ("jobset", "kueue"):
        wait(lambda name=name: _is_healthy(ports[f"{name}-health"]), name, site, processes)  # type: ignore[misc]
    # Only now: before its server runs, a webhook refuses what it is asked about.
    _create_all(api, _webhooks(site, manifests, ports))
    wait(lambda: _webhook_answers(api), "the webhook of jobset", site, processes)
    wait(lambda: injects(api), "the policy that stands for GKE's webhook", site, processes)


def _create_all(api: Api, wanted: Iterable[Object]) -> None:
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(api.create, wanted))


def _definitions(manifests: dict[str, Path], conversion: Object) -> list[Object]:
    found = []
    for part in ("jobset", "kueue"):
        patches = manifests[part] / "patches"
        converted = {_read(patch)[0]["metadata"]["name"] for patch in patches.glob("*.json")}
        for path in sorted((manifests[part] / "bases").glob("*.json")):
            [definition] = _read(path)
            if definition["metadata"]["name"] in converted:
                definition["spec"]["conversion"] = {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": conversion, "conversionReviewVersions": ["v1"]},
                }
            found.append(definition)
    return found


def _webhooks(site: Site, manifests: dict[str, Path], ports: dict[str, int]) -> list[Object]:
    found = []
    for part in ("jobset", "kueue"):
        for configuration in _read(manifests[part] / "webhook" / "manifests.json"):
            kept = []
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                if part == "kueue" and path.rpartition("-")[2] not in _KUEUE_WEBHOOKS:
                    continue
                webhook["clientConfig"] = _client_config(site, ports[part], path)
                if part == "jobset" and path.endswith("-v1-pod"):
                    webhook["objectSelector"] = {
                        "matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]
                    }
                kept.append(webhook)
            configuration["webhooks"] = kept
            configuration["metadata"]["name"] = f"{part}-{configuration['metadata']['name']}"
            found.append(configuration)
    return found


def _client_config(site: Site, port: int, path: str) -> Object:
    bundle = base64.b64encode(site.authority.certificate.read_bytes()).decode()
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}


def _serving_certificates(site: Site, name: str) -> Path:
    directory = site.directory / "webhooks" / name
    directory.mkdir(parents=True)
    pair = site.authority.issue(f"{name}-webhook", user=name, hosts=("127.0.0.1",))
    (directory / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (directory / "tls.key").write_bytes(pair.key.read_bytes())
    return directory


def unserved(api: Api, definitions: Iterable[Object]) -> list[str]:
    """Which versions of these CRDs a controller that starts now would not find yet, as `GROUP/VERSION/PLURAL`.

    The API server takes a CRD in steps, each a moment after the one before, and many moments on a busy machine: it
    accepts the names, serves the objects, lists the kind in its version's discovery, and lists it in the discovery of
    all groups at once, which clients ask first.
    """
    established = {
        each["metadata"]["name"]
        for each in api.list("CustomResourceDefinition")
        if has_condition(each, "NamesAccepted") and has_condition(each, "Established")
    }
    discovered = _discovered(api)
    wanted = [
        (each["metadata"]["name"], each["spec"]["group"], version["name"], each["spec"]["names"]["plural"])
        for each in definitions
        for version in each["spec"]["versions"]
        if version["served"]
    ]
    return [
        f"{group}/{version}/{plural}"
        for name, group, version, plural in wanted
        if name not in established
        or (group, version, plural) not in discovered
        or not _is_listed(api, group, version, plural)
    ]


def _discovered(api: Api) -> set[tuple[str, str, str]]:
    everything = api.request(
        "GET", "/apis", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    return {
        (group["metadata"]["name"], version["version"], resource["resource"])
        for group in everything["items"]
        for version in group["versions"]
        if version.get("freshness") != "Stale"  # clients skip those
        for resource in version.get("resources", [])
    }


def _is_listed(api: Api, group: str, version: str, plural: str) -> bool:
    try:
        served = api.request("GET", f"/apis/{group}/{version}")
        # All of them, as a controller asks: a part is answered from storage before the cache behind the rest is filled.
        api.request("GET", f"/apis/{group}/{version}/{plural}")
    except ApiError:
        return False
    return any(each["name"] == plural for each in served["resources"])


def _start_jobset(site: Site, kubeconfig: Path, ports: dict[str, int]) -> subprocess.Popen[bytes]:
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {
            "host": "127.0.0.1",
            "port": ports["jobset"],
            "certDir": str(_serving_certificates(site, "jobset")),
        },
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['jobset-health']}"},
        "metrics": {"bindAddress": "0"},
    }
    path = site.directory / "jobset.json"
    path.write_text(json.dumps(configuration))
    return site.start("jobset", f"--config={path}", environment={"KUBECONFIG": str(kubeconfig)})


def _start_kueue(site: Site, kubeconfig: Path, ports: dict[str, int]) -> subprocess.Popen[bytes]:
    certificates = _serving_certificates(site, "kueue")
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kube-system",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": ports["kueue"], "certDir": str(certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['kueue-health']}"},
        "metrics": {"bindAddress": "0"},
        "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
        "featureGates": {"VisibilityOnDemand": False},
    }
    path = site.directory / "kueue.json"
    path.write_text(json.dumps(configuration))
    # With certificates of ours Kueue reads one more pair from a fixed place under /etc, so it gets an /etc of its own.
    script = (
        "mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics/certs && "
        f'cp {certificates}/tls.* /etc/kueue/metrics/certs/ && exec "$0" "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, str(site.binaries["kueue"]), f"--config={path}"]
    return site.machine.start(command, site.logs / "kueue.log", {"KUBECONFIG": str(kubeconfig)})


def _start_coredns(site: Site, kubeconfig: Path) -> subprocess.Popen[bytes]:
    corefile = site.directory / "Corefile"
    corefile.write_text(
        f"""\
.:53 {{
    bind {site.address}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""
    )
    return site.start("coredns", "-conf", str(corefile))


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _webhook_answers(api: Api) -> bool:
    probe = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "probe",
                    "template": {
                        "spec": {
                            "template": {"spec": {"containers": [{"name": "probe", "image": "probe"}]}},
                        }
                    },
                }
            ]
        },
    }
    made = api.create(probe, dry_run=True)
    return bool(made["spec"]["replicatedJobs"][0]["template"]["spec"].get("completionMode") == "Indexed")


def injects(api: Api) -> bool:
    """Whether a TPU pod gets its variables here; asked by a dry run."""
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "nodeSelector": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                "cloud.google.com/gke-tpu-topology": "1x1",
            },
            "containers": [{"name": "probe", "image": "probe", "resources": {"limits": {"google.com/tpu": "1"}}}],
        },
    }
    try:
        made = api.create(probe, dry_run=True)
    except (ApiError, urllib3.exceptions.HTTPError):
        return False
    return any(each["name"] == "TPU_WORKER_ID" for each in made["spec"]["containers"][0].get("env", []))
