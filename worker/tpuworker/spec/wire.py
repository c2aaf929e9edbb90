"""The contract between launcher, platform and worker: every name that one of them writes and another reads.

Each constant says who sets it, who reads it, and its range.
"""

from __future__ import annotations

#: Annotation of the pod template that carries the spec's text. Set by the launcher; read through SPEC_PATH.
SPEC_ANNOTATION = "tpulaunch.dev/spec"
#: File a downward-API volume makes of SPEC_ANNOTATION. Read by the worker when no path is given.
SPEC_PATH = "/etc/tpulaunch/job.yaml"
#: Largest text of a spec in bytes; all annotations of an object share 256 KiB.
SPEC_LIMIT_BYTES = 200 * 1024

#: Name of the JobSet's one replicated job and of its container. Read by failure policy, logs and status.
REPLICATED_JOB = "slice"
CONTAINER = "worker"

#: First witness of the slice: 0 to slices-1. Set by the launcher from the pod label jobset.sigs.k8s.io/job-index.
ENV_SLICE_INDEX = "TPULAUNCH_SLICE_INDEX"
#: First witness of the host of the slice: 0 to hosts_per_slice-1. Set by Kubernetes in an Indexed Job.
ENV_COMPLETION_INDEX = "JOB_COMPLETION_INDEX"
#: Attempt of the JobSet, 0 at first. Set by the launcher from the pod label jobset.sigs.k8s.io/restart-attempt.
ENV_RESTART_ATTEMPT = "TPULAUNCH_RESTART_ATTEMPT"
#: Name, namespace and node of the pod. Set by the launcher through the downward API; read for messages.
ENV_POD_NAME = "TPULAUNCH_POD_NAME"
ENV_POD_NAMESPACE = "TPULAUNCH_POD_NAMESPACE"
ENV_NODE_NAME = "TPULAUNCH_NODE_NAME"
#: Address of host 0 of slice 0, ``<jobset>-slice-0-0.<jobset>``. Set by the launcher; all hosts meet there.
#: With ``:port`` where the backend's usual port may be taken (``tpulaunch run``).
ENV_COORDINATOR = "TPULAUNCH_COORDINATOR"
#: Path of the spec, if not SPEC_PATH. Set by ``tpulaunch run``.
ENV_SPEC = "TPULAUNCH_SPEC"
#: File for the last words (verdict, failure). Set by ``tpulaunch run``; default: the kubelet's termination log.
ENV_TERMINATION_LOG = "TPULAUNCH_TERMINATION_LOG"
TERMINATION_LOG = "/dev/termination-log"
#: Most bytes the kubelet keeps of a termination message.
TERMINATION_LIMIT_BYTES = 4096

#: ``json`` (default) or ``text``: how the worker writes its log. Set by people.
ENV_LOG = "TPULAUNCH_LOG"
#: Port of the worker's own metrics, 0 for none. Set by ``tpulaunch run``; default: PORT_WORKER_METRICS.
ENV_METRICS_PORT = "TPULAUNCH_METRICS_PORT"
#: Directory for the verdict and the report of a run. Set by ``tpulaunch run``; default: ``tpulaunch`` among temporary
#: files, which the kubelet ends with the pod.
ENV_STATE_DIR = "TPULAUNCH_STATE_DIR"
#: ``1``: end after the proof. Set by ``tpulaunch preflight``.
ENV_PREFLIGHT_ONLY = "TPULAUNCH_PREFLIGHT_ONLY"
#: ``1``: resume although files, tokenizer or layout changed. Set by ``--accept-changed-data``.
ENV_ACCEPT_CHANGED_DATA = "TPULAUNCH_ACCEPT_CHANGED_DATA"
#: Which submission this is: its restarts share it, and no other has it. Set by ``submit --accept-changed-data`` from
#: the pod label jobset.sigs.k8s.io/jobset-uid; without it every start accepts what it finds.
ENV_SUBMISSION = "TPULAUNCH_SUBMISSION"
#: ``TPU`` or ``CPU``: what every backend opens. Default: TPU where the device plugin has left its mark.
ENV_PJRT_DEVICE = "PJRT_DEVICE"

#: Values of the field ``event`` of a log line. Written by the worker, read by status, logs and ``tpulaunch run``.
EVENT_PREFLIGHT = "preflight"
EVENT_PROGRESS = "progress"
EVENT_END = "end"

#: Second witnesses. Set by GKE's webhook or the device plugin, never by the launcher.
ENV_TPU_WORKER_ID = "TPU_WORKER_ID"
ENV_TPU_WORKER_HOSTNAMES = "TPU_WORKER_HOSTNAMES"
ENV_TPU_PROCESS_ADDRESSES = "TPU_PROCESS_ADDRESSES"
ENV_MEGASCALE_SLICE_ID = "MEGASCALE_SLICE_ID"
ENV_MEGASCALE_NUM_SLICES = "MEGASCALE_NUM_SLICES"
ENV_MEGASCALE_COORDINATOR = "MEGASCALE_COORDINATOR_ADDRESS"
#: Rank and world where torchrun starts the workers instead of JobSet.
ENV_RANK = "RANK"
ENV_WORLD_SIZE = "WORLD_SIZE"

#: Ports of a worker pod. JAX's default coordinator port; torch_xla's; libtpu's metrics; slice builder; ours.
PORT_JAX_COORDINATOR = 8482
PORT_TORCH_MASTER = 12355
PORT_TPU_METRICS = 8431
PORT_SLICE_BUILDER = 8471
PORT_MEGASCALE = 8080
PORT_WORKER_METRICS = 9431

#: Exit code that asks for a restart that counts. Returned by the worker; matched by the failure policy.
EXIT_RESTART = 42

_PLATFORM_ENV_PREFIXES = ("TPULAUNCH_", "MEGASCALE_", "TPU_TOPOLOGY", "TPU_WORKER_", "TPU_PROCESS_")
_PLATFORM_ENV = frozenset(
    {
        "TPU_ACCELERATOR_TYPE",
        "TPU_SKIP_MDS_QUERY",
        "TPU_HOST_BOUNDS",
        "TPU_CHIPS_PER_HOST_BOUNDS",
        "TPU_CHIPS_PER_PROCESS_BOUNDS",
        "TPU_VISIBLE_CHIPS",
        "TPU_RUNTIME_METRICS_PORTS",
        "CLOUD_TPU_TASK_ID",
        "ENABLE_ICI_RESILIENCY",
        "VBAR_CONTROL_SERVICE_URL",
        "PJRT_DEVICE",
        ENV_COMPLETION_INDEX,
        ENV_RANK,
        ENV_WORLD_SIZE,
    }
)

_RESERVED_KEY_PREFIXES = (
    "jobset.sigs.k8s.io/",
    "alpha.jobset.sigs.k8s.io/",
    "batch.kubernetes.io/",
    "kueue.x-k8s.io/",
    "tpulaunch.dev/",
    "app.kubernetes.io/managed-by",
    "cluster-autoscaler.kubernetes.io/",
)


def is_reserved_env(name: str) -> bool:
    """Say whether the platform or the launcher sets a variable, so that a user's value would only break it."""
    return name in _PLATFORM_ENV or name.startswith(_PLATFORM_ENV_PREFIXES)


def is_reserved_key(key: str) -> bool:
    """Say whether a label or annotation key belongs to JobSet, Kueue, Kubernetes or the launcher."""
    return key.startswith(_RESERVED_KEY_PREFIXES)
