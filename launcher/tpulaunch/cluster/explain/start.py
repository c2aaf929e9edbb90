"""Why a pod with a node does not start: images, secrets, volumes, commands, and nodes that have gone silent."""

from __future__ import annotations

import re

from tpulaunch.cluster.conditions import HostPhase, host_phase_of, is_ready_node, waiting_reason
from tpulaunch.cluster.explain.cause import Cause, about, claim_missing, counted, events_about, first_line, several
from tpulaunch.cluster.objects import Object, dig, name_of
from tpulaunch.cluster.state import HostState, Observation, job_state, place_of

_SECRET = re.compile(r'secrets? "([^"]+)" not found')
_SECRET_KEY = re.compile(r"couldn't find key (\S+) in Secret (\S+)")
_CONFIG_MAP = re.compile(r'configmaps? "([^"]+)" not found')
_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")


def explain_start(observed: Observation) -> Cause | None:
    """Return why the first pod that has a node, but no running worker, does not start."""
    pods = sorted(observed.pods, key=lambda pod: place_of(pod) or (0, 0))
    for pod in pods:
        if host_phase_of(pod) is HostPhase.BLOCKED and (cause := _waiting(observed, pod)):
            return cause
    for pod in pods:
        if host_phase_of(pod) is HostPhase.PENDING and (cause := _mounting(observed, pod)):
            return cause
    return None


def _waiting(observed: Observation, pod: Object) -> Cause | None:
    reason, words = waiting_reason(pod) or ("", "")
    if reason in _PULLING:
        return _image(observed, pod, reason, words)
    if reason == "CreateContainerConfigError":
        return _config(observed, pod, words)
    if reason == "CrashLoopBackOff":
        return None  # its end is a failure, explained there
    return Cause(
        "container-not-started",
        f"host {_host(pod)}: the container cannot be started: {reason}",
        "look at spec.train.command and the image: is the program in it, and for this architecture?",
        about(pod),
        first_line(words),
    )


def _image(observed: Observation, pod: Object, reason: str, words: str) -> Cause:
    image = str(dig(pod, "spec", "containers", 0, "image", default=""))
    events = [event for event in events_about(observed, pod, "Failed") if "image" in event.message.lower()]
    told = next((event.message for event in reversed(events) if "pull" in event.message), words)
    lowered = told.lower()
    if reason == "InvalidImageName":
        remedy = "mend spec.worker.image: the name is not valid"
    elif "not found" in lowered or "manifest unknown" in lowered or "notfound" in lowered:
        remedy = "mend spec.worker.image: no such image or digest; was it pushed?"
    elif any(word in lowered for word in ("unauthorized", "denied", "forbidden", "authentication", "credential")):
        remedy = "give the nodes' service account access to the registry, or set spec.worker.image_pull_secrets"
    else:
        remedy = "look whether the nodes reach the registry, and whether spec.worker.image is right"
    return Cause(
        "image-pull", f"host {_host(pod)}: the image {image} cannot be pulled", remedy, about(pod), first_line(told)
    )


def _config(observed: Observation, pod: Object, words: str) -> Cause:
    namespace = dig(observed.jobset, "metadata", "namespace")
    if found := _SECRET_KEY.search(words):
        secret = found[2].rpartition("/")[2]
        return Cause(
            "secret-key-missing",
            f"the Secret {secret!r} has no key {found[1]!r}",
            f"add the key to the Secret, or mend spec.train.secrets (kubectl -n {namespace} describe secret {secret})",
            about(pod),
            first_line(words),
        )
    if found := _SECRET.search(words):
        return _secret_missing(pod, found[1], namespace, words)
    if found := _CONFIG_MAP.search(words):
        return Cause(
            "config-map-missing",
            f"the ConfigMap {found[1]!r} does not exist in namespace {namespace!r}",
            "create it, or mend the spec",
            about(pod),
            first_line(words),
        )
    return Cause(
        "container-config",
        f"host {_host(pod)}: the container's settings are not usable",
        "change what the message names",
        about(pod),
        first_line(words),
    )


def _secret_missing(pod: Object, secret: str, namespace: str, words: str) -> Cause:
    return Cause(
        "secret-missing",
        f"the Secret {secret!r} does not exist in namespace {namespace!r}",
        f"create it: kubectl -n {namespace} create secret generic {secret} --from-literal=KEY=VALUE",
        about(pod),
        first_line(words),
    )


def _mounting(observed: Observation, pod: Object) -> Cause | None:
    events = events_about(observed, pod, "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
    if not events:
        return None
    words, namespace = events[-1].message, dig(observed.jobset, "metadata", "namespace")
    if found := _SECRET.search(words):
        return _secret_missing(pod, found[1], namespace, words)
    if cause := claim_missing(observed, pod, words):
        return cause
    is_sandbox = events[-1].reason == "FailedCreatePodSandBox"
    return Cause(
        "sandbox" if is_sandbox else "mount",
        f"host {_host(pod)}: {'its network or sandbox cannot be made' if is_sandbox else 'a volume cannot be mounted'}",
        "ask an administrator to look at the node" if is_sandbox else "look at spec.worker.volumes and the message",
        about(pod),
        first_line(words),
    )


def explain_nodes(observed: Observation) -> Cause | None:
    """Return the node under a running host that has gone silent or away."""
    if observed.nodes is None:
        return None
    nodes = {name_of(node): node for node in observed.nodes}
    troubled: list[tuple[HostState, str]] = []
    for host in job_state(observed).hosts:
        if not host.node or host.phase in (HostPhase.SUCCEEDED, HostPhase.FAILED):
            continue
        if host.node not in nodes:
            troubled.append((host, "is gone"))
        elif not is_ready_node(nodes[host.node]):
            troubled.append((host, "is not ready"))
    if not troubled:
        return None
    first, state = troubled[0]
    return Cause(
        "node-lost",
        f"node {first.node} of host {first.label} {state}"
        + (
            f" ({counted(len(troubled), 'host')}: {several(h.label for h, _ in troubled)})" if len(troubled) > 1 else ""
        ),
        "wait: the job restarts on other nodes, and this does not use up its restarts",
        f"Node {first.node}",
        is_fault=False,
    )


def _host(pod: Object) -> str:
    slice_index, host = place_of(pod) or (0, 0)
    return f"{slice_index}/{host}"
