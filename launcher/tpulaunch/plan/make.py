"""From a job to its plan, or to everything that keeps it from running on a cluster."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tpulaunch.names import default_name, judge_name
from tpulaunch.plan.capacity import NODE_POOL_LABEL, Capacity, plan_capacity
from tpulaunch.plan.environment import Switches, plan_environment
from tpulaunch.plan.failure import jobset_rules, pod_rules
from tpulaunch.plan.memory import judge_memory, plan_memory
from tpulaunch.plan.remarks import remarks_on
from tpulaunch.plan.storage import fuse_annotations, plan_storage
from tpulaunch.plan.values import ContainerPlan, JobPlan, Mount, Pairs, Port, SecurityPlan, Variable
from tpuworker.errors import Fault, SpecError
from tpuworker.spec import wire
from tpuworker.spec.document import parse_document
from tpuworker.spec.job import TPUJob

#: What every cluster command finds its own objects by.
MANAGED_BY = "tpulaunch"
#: Annotations of the JobSet: who submitted under a default name, which tpulaunch rendered it, hash of the job.
SUBMITTER_ANNOTATION = "tpulaunch.dev/submitter"
VERSION_ANNOTATION = "tpulaunch.dev/version"
DIGEST_ANNOTATION = "tpulaunch.dev/job-digest"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
#: Kubernetes' limit on all annotations of an object.
_ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_COMMAND = ("tpuworker",)
_NO_SWITCHES = Switches()
#: What the name of a proof without training ends with, so that it can stand beside the job itself.
_PREFLIGHT_SUFFIX = "-preflight"


def make_plan(
    job: TPUJob,
    spec_text: str,
    *,
    where: str = "",
    namespace: str | None = None,
    login: str | None = None,
    version: str | None = None,
    switches: Switches = _NO_SWITCHES,
) -> JobPlan:
    """Return the plan of a job: a pure function of its arguments.

    Args:
        job: The job.
        spec_text: The text it was read from; it travels to the workers byte for byte.
        where: Name of the text for messages.
        namespace: Overrides the spec's namespace.
        login: Login name for the name of a job that has none in its spec; None where the system knows none.
        version: Version of tpulaunch, noted in an annotation.
        switches: What this run is for; a proof alone is an object of its own beside the job.

    Raises:
        SpecError: The job is valid and yet cannot run on a cluster: every reason, with its line.
    """
    plan, faults = draft_plan(job, spec_text, namespace=namespace, login=login, version=version, switches=switches)
    if faults:
        raise SpecError(with_lines(faults, spec_text), where)
    return plan


def draft_plan(
    job: TPUJob,
    spec_text: str,
    *,
    namespace: str | None = None,
    login: str | None = None,
    version: str | None = None,
    switches: Switches = _NO_SWITCHES,
) -> tuple[JobPlan, tuple[Fault, ...]]:
    """Return the plan together with what is wrong with it, for callers that judge some faults more mildly."""
    spec, slices = job.spec, job.spec.slice
    digest = job_digest(job)
    name = job.metadata.name or default_name(login, digest, slices.count, slices.hosts_per_slice)
    name += _PREFLIGHT_SUFFIX if switches.preflight_only else ""
    capacity, memory = plan_capacity(job), plan_memory(job)
    volumes, mounts = plan_storage(spec.worker, memory)
    container = _container(job, plan_environment(job, name, switches), f"{memory.container_gib}Gi", mounts)
    labels = _labels(job, name, digest)
    plan = JobPlan(
        name=name,
        namespace=namespace or job.metadata.namespace,
        labels=(*labels, *_queue_labels(job)),
        annotations=_annotations(job, capacity, digest, login, version),
        replicated_job=wire.REPLICATED_JOB,
        num_slices=slices.count,
        hosts_per_slice=slices.hosts_per_slice,
        restarts=spec.schedule.restarts,
        jobset_rules=jobset_rules(has_deadline=spec.schedule.max_run_seconds is not None),
        pod_rules=pod_rules(container.name),
        ttl_seconds_after_finished=spec.schedule.ttl_seconds_after_finished,
        active_deadline_seconds=spec.schedule.max_run_seconds,
        pod_labels=labels,
        # Consolidation of nodes would otherwise move a running slice.
        pod_annotations=(("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), *fuse_annotations(memory)),
        spec_annotation=wire.SPEC_ANNOTATION,
        spec_text=spec_text,
        grace_seconds=spec.schedule.grace_seconds,
        service_account=spec.worker.service_account,
        mount_token=spec.worker.service_account is not None,
        priority_class=spec.schedule.priority_class,
        host_network=spec.worker.host_network,
        node_selector=capacity.node_selector,
        tolerations=capacity.tolerations,
        image_pull_secrets=spec.worker.image_pull_secrets,
        security=SecurityPlan(spec.worker.user, spec.worker.privileged, spec.worker.read_only_root),
        volumes=volumes,
        container=container,
    )
    faults = [*_judge(job, plan), *judge_memory(job, memory)]
    return replace(plan, remarks=tuple(remarks_on(job, memory))), tuple(faults)


def job_digest(job: TPUJob) -> str:
    """Return the SHA-256 of what the spec says, in hexadecimal: comments, order and defaults play no part."""
    said = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def with_lines(faults: Sequence[Fault], spec_text: str) -> list[Fault]:
    """Return faults with the lines of the text at which their paths, or what is left of them, stand."""
    document = parse_document(spec_text)
    lined = [
        replace(fault, line=document.line_of(tuple(re.split(r"[.]", fault.path))))
        if fault.path != "document"
        else fault
        for fault in faults
    ]
    return sorted(lined, key=lambda fault: (fault.line is None, fault.line or 0))


def _judge(job: TPUJob, plan: JobPlan) -> Iterator[Fault]:
    if fault := judge_name(plan.name, plan.num_slices, plan.hosts_per_slice):
        yield fault
    if job.spec.worker.image is None:
        yield Fault(
            "spec.worker.image", "no image", "the worker's image, pinned by digest", "only local runs need none"
        )
    size = len(plan.spec_text.encode())
    if size > wire.SPEC_LIMIT_BYTES:
        wanted = f"at most {wire.SPEC_LIMIT_BYTES}, since the spec travels in an annotation of the pods"
        yield Fault("document", f"{size} bytes", wanted, "put long lists of files into a pattern")
    annotations = sum(len(key.encode()) + len(value.encode()) for key, value in plan.annotations)
    if annotations > _ANNOTATIONS_LIMIT_BYTES:
        yield Fault("metadata.annotations", f"{annotations} bytes", f"at most {_ANNOTATIONS_LIMIT_BYTES}")


def _container(job: TPUJob, env: tuple[Variable, ...], memory: str, mounts: tuple[Mount, ...]) -> ContainerPlan:
    return ContainerPlan(
        name=wire.CONTAINER,
        image=job.spec.worker.image or "",
        command=_COMMAND,
        chips=job.spec.slice.shape.machine.chips,
        memory=memory,
        env=env,
        ports=_ports(job),
        mounts=mounts,
    )


def _ports(job: TPUJob) -> tuple[Port, ...]:
    rendezvous = {"jax": Port("jax-coordinator", wire.PORT_JAX_COORDINATOR)}
    ports = [
        Port("tpu-metrics", wire.PORT_TPU_METRICS),
        Port("slice-builder", wire.PORT_SLICE_BUILDER),
        rendezvous.get(job.spec.worker.backend, Port("torch-master", wire.PORT_TORCH_MASTER)),
        Port("metrics", wire.PORT_WORKER_METRICS),
    ]
    if job.spec.slice.count > 1:
        ports.append(Port("megascale", wire.PORT_MEGASCALE))
    return tuple(ports)


def _labels(job: TPUJob, name: str, digest: str) -> Pairs:
    recommended = {
        "app.kubernetes.io/name": "tpuworker",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/version": digest[:12],  # of the job; a tool's version would make pods of one job differ
        "app.kubernetes.io/component": "training",
        "app.kubernetes.io/part-of": MANAGED_BY,
    }
    return tuple({**recommended, **job.metadata.labels, "app.kubernetes.io/managed-by": MANAGED_BY}.items())


def _queue_labels(job: TPUJob) -> Pairs:
    schedule = job.spec.schedule
    pairs = (
        ("kueue.x-k8s.io/queue-name", schedule.queue),
        ("kueue.x-k8s.io/priority-class", schedule.priority),
    )
    return tuple((key, value) for key, value in pairs if value is not None)


def _annotations(job: TPUJob, capacity: Capacity, digest: str, login: str | None, version: str | None) -> Pairs:
    annotations = {DIGEST_ANNOTATION: digest}
    if version is not None:
        annotations[VERSION_ANNOTATION] = version
    if job.metadata.name is None and login is not None:  # elsewhere it would make one file render differently by person
        annotations[SUBMITTER_ANNOTATION] = login
    if job.spec.slice.shape.is_multi_host:
        # Two slices of one shape must not share node pools; a pool of single hosts must not go to one Job whole.
        annotations[EXCLUSIVE_TOPOLOGY] = NODE_POOL_LABEL
    return (*annotations.items(), *capacity.annotations, *job.metadata.annotations.items())
