"""The values a plan is made of: everything that the manifest says, decided, and nothing left to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Pairs in the order in which they are rendered; names are unique.
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Literally:
    """A variable with a value, escaped so that the kubelet's ``$(NAME)`` expansion gives the user's bytes back."""

    name: str
    value: str


@dataclass(frozen=True)
class FromField:
    """A variable whose value is a field of the pod (downward API)."""

    name: str
    field_path: str


@dataclass(frozen=True)
class FromSecret:
    """A variable whose value stays in a Secret."""

    name: str
    secret: str
    key: str


Variable = Literally | FromField | FromSecret


@dataclass(frozen=True)
class Toleration:
    """A taint the pods may run on. ``value`` None means that any value will do (operator Exists)."""

    key: str
    value: str | None
    effect: str = "NoSchedule"

    @property
    def operator(self) -> str:
        """Kubernetes' word for how the value is compared."""
        return "Exists" if self.value is None else "Equal"


@dataclass(frozen=True)
class EmptyDir:
    """Space that ends with the pod. ``size_limit`` is a quantity (``8Gi``); None: no limit but the disk."""

    name: str
    medium: Literal["Memory"] | None = None
    size_limit: str | None = None
    kind: Literal["empty_dir"] = "empty_dir"


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim."""

    name: str
    claim: str
    read_only: bool
    kind: Literal["claim"] = "claim"


@dataclass(frozen=True)
class Fuse:
    """A bucket through the Cloud Storage FUSE driver; ``attributes`` are the driver's."""

    name: str
    read_only: bool
    attributes: Pairs
    kind: Literal["fuse"] = "fuse"


@dataclass(frozen=True)
class AnnotationFile:
    """A file made of one annotation of the pod (downward API)."""

    name: str
    file: str
    annotation: str
    kind: Literal["annotation_file"] = "annotation_file"

    @property
    def field_path(self) -> str:
        """The annotation, as the downward API addresses it."""
        return f"metadata.annotations['{self.annotation}']"


Volume = EmptyDir | Claim | Fuse | AnnotationFile


@dataclass(frozen=True)
class Mount:
    """Where a volume appears in the container."""

    name: str
    path: str
    read_only: bool


@dataclass(frozen=True)
class Port:
    """A port the container listens on, declared for readers and for GKE's metric collection."""

    name: str
    number: int


@dataclass(frozen=True)
class SecurityPlan:
    """What the pod may do.

    Attributes:
        user: Numeric user and group of the process and of its volumes.
        privileged: Whether the container owns the host.
        read_only_root: Whether the image's files are protected from the process.
    """

    user: int
    privileged: bool
    read_only_root: bool

    @property
    def is_not_root(self) -> bool:
        """Whether the kubelet refuses to start the process as root."""
        return self.user != 0


@dataclass(frozen=True)
class ContainerPlan:
    """The container of a pod, which drives all chips of its host.

    Attributes:
        name: Name; the failure policy and the logs go by it.
        image: Image reference.
        command: Program and arguments.
        chips: ``google.com/tpu`` requested.
        memory: Memory request and limit, a quantity (``576Gi``); /dev/shm counts against it.
        env: Variables in order.
        ports: Declared ports.
        mounts: Mounted volumes.
    """

    name: str
    image: str
    command: tuple[str, ...]
    chips: int
    memory: str
    env: tuple[Variable, ...]
    ports: tuple[Port, ...]
    mounts: tuple[Mount, ...]


@dataclass(frozen=True)
class PodFailureRule:
    """A rule of the Job: it fails on a pod condition, or on the exit codes of a container outside a list."""

    condition: str | None = None
    container: str | None = None
    not_in_exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True)
class JobSetFailureRule:
    """A rule of the JobSet, for Jobs that failed by their pod failure policy with a message that matches."""

    name: str
    action: str
    message_pattern: str
    reason: str = "PodFailurePolicy"


@dataclass(frozen=True)
class JobPlan:
    """One JobSet, decided to the last value.

    Attributes:
        name: Name of the JobSet.
        namespace: Namespace, or None to leave it to the client's context.
        labels: Labels of the JobSet.
        annotations: Annotations of the JobSet.
        replicated_job: Name of the one replicated job.
        num_slices: Jobs: one for each slice.
        hosts_per_slice: Pods of a Job: parallelism and completions.
        restarts: Restarts that failures may use up.
        jobset_rules: Failure rules of the JobSet, first match decides.
        pod_rules: Failure rules of a Job, first match decides.
        ttl_seconds_after_finished: How long the finished object stays.
        active_deadline_seconds: Longest run of a Job, or None.
        pod_labels: Labels of the pods.
        pod_annotations: Annotations of the pods, without the spec.
        spec_annotation: Key of the annotation that carries the spec.
        spec_text: The spec, byte for byte.
        grace_seconds: Time between SIGTERM and SIGKILL.
        service_account: Kubernetes service account, or None for the namespace's default.
        mount_token: Whether the account's API token is mounted.
        priority_class: PriorityClass of the pods, or None.
        host_network: Whether pods share the host's network.
        node_selector: Labels that nodes must have.
        tolerations: Taints that nodes may have.
        image_pull_secrets: Secrets for the registry.
        security: What the pod may do.
        volumes: Volumes of the pod.
        container: The one container of the pod.
        remarks: What is allowed and yet worth a second look, one sentence each; not rendered.
    """

    name: str
    namespace: str | None
    labels: Pairs
    annotations: Pairs
    replicated_job: str
    num_slices: int
    hosts_per_slice: int
    restarts: int
    jobset_rules: tuple[JobSetFailureRule, ...]
    pod_rules: tuple[PodFailureRule, ...]
    ttl_seconds_after_finished: int
    active_deadline_seconds: int | None
    pod_labels: Pairs
    pod_annotations: Pairs
    spec_annotation: str
    spec_text: str
    grace_seconds: int
    service_account: str | None
    mount_token: bool
    priority_class: str | None
    host_network: bool
    node_selector: Pairs
    tolerations: tuple[Toleration, ...]
    image_pull_secrets: tuple[str, ...]
    security: SecurityPlan
    volumes: tuple[Volume, ...]
    container: ContainerPlan
    remarks: tuple[str, ...] = ()

    @property
    def num_hosts(self) -> int:
        """Pods of the whole job."""
        return self.num_slices * self.hosts_per_slice
