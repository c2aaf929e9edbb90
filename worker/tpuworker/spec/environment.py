"""The environment of one host: exactly the variables that GKE, Kubernetes and the launcher give its container.

``tpulaunch run --local`` starts workers with it, the tests read identities back from it, and the test cluster's
stand-in for GKE's webhook follows it. Sources: the GKE TPU device plugin (``pkg/tpu/util/util.go``, ``InitEnvs``),
GKE's documentation of the webhook's conditions, and the KubeRay webhook for addresses with ports, since GKE's own is
not public.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuworker.spec import wire
from tpuworker.spec.job import TPUJob
from tpuworker.spec.tpu import SliceShape, format_topology

_VBAR_SOCKET = "unix:///var/run/tpu-plugin/vbar.sock"
#: Chips of a container along x, y, z by how many it asks for (device plugin, ``getChipsPerDim``).
_CHIPS_ALONG = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}


def host_name(job_name: str, slice_index: int, host_of_slice: int) -> str:
    """Return the name under which JobSet's headless service knows a host: ``<job>-slice-<slice>-<host>.<job>``."""
    return f"{job_name}-{wire.REPLICATED_JOB}-{slice_index}-{host_of_slice}.{job_name}"


def device_plugin_environment(shape: SliceShape, chips_per_container: int | None = None) -> dict[str, str]:
    """Return what the TPU device plugin sets, the same on every host of a slice.

    Args:
        shape: The slice.
        chips_per_container: Value of ``google.com/tpu`` the container asks for. Default: all chips of the host.
    """
    chips = shape.machine.chips if chips_per_container is None else chips_per_container
    chip_bounds = _CHIPS_ALONG[chips]
    edges = (*shape.topology, 1)[:3]
    host_bounds = _commas(edge // chip for edge, chip in zip(edges, chip_bounds, strict=True))
    wrap = _commas(str(closed).lower() for closed in shape.wrap)
    ports = _commas(wire.PORT_TPU_METRICS + device for device in range(shape.devices_per_host))
    environment = {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_ACCELERATOR_TYPE": shape.accelerator_type,
        "TPU_TOPOLOGY": format_topology(shape.topology),
        "TPU_RUNTIME_METRICS_PORTS": ports,
        "VBAR_CONTROL_SERVICE_URL": _VBAR_SOCKET,
    }
    bounds = {
        "HOST_BOUNDS": host_bounds,
        "CHIPS_PER_HOST_BOUNDS": _commas(chip_bounds),
    }
    environment |= bounds | {f"TPU_{name}": value for name, value in bounds.items()}
    environment |= {"ALT": "false", "TPU_TOPOLOGY_ALT": "false", "WRAP": wrap, "TPU_TOPOLOGY_WRAP": wrap}
    if shape.has_ici_resiliency:
        environment["ENABLE_ICI_RESILIENCY"] = "true"
    if shape.plugin_sets_worker_id:
        environment |= {wire.ENV_TPU_WORKER_ID: "0", wire.ENV_TPU_WORKER_HOSTNAMES: "localhost"}
    return environment


def gke_environment(job: TPUJob, job_name: str, slice_index: int, host_of_slice: int) -> dict[str, str]:
    """Return what the platform alone gives a host: device plugin, GKE's webhook, and Kubernetes' Indexed Job.

    Args:
        job: The job.
        job_name: Name of the JobSet, which the host names carry.
        slice_index: 0 to slices-1.
        host_of_slice: 0 to hosts_per_slice-1.
    """
    shape, num_slices = job.spec.slice.shape, job.spec.slice.count
    environment = device_plugin_environment(shape)
    environment[wire.ENV_COMPLETION_INDEX] = str(host_of_slice)
    if not shape.plugin_sets_worker_id:
        hosts = [host_name(job_name, slice_index, host) for host in range(shape.hosts)]
        environment[wire.ENV_TPU_WORKER_ID] = str(host_of_slice)
        if shape.generation.addresses_variable == wire.ENV_TPU_PROCESS_ADDRESSES:
            environment[wire.ENV_TPU_PROCESS_ADDRESSES] = _commas(f"{h}:{wire.PORT_SLICE_BUILDER}" for h in hosts)
            environment["TPU_PROCESS_PORT"] = str(wire.PORT_SLICE_BUILDER)
        else:
            environment[wire.ENV_TPU_WORKER_HOSTNAMES] = _commas(hosts)
    if num_slices > 1:
        environment |= {
            wire.ENV_MEGASCALE_NUM_SLICES: str(num_slices),
            wire.ENV_MEGASCALE_SLICE_ID: str(slice_index),
            wire.ENV_MEGASCALE_COORDINATOR: host_name(job_name, 0, 0),
        }
    return environment


def worker_environment(
    job: TPUJob,
    job_name: str,
    slice_index: int,
    host_of_slice: int,
    *,
    namespace: str = "default",
    node_name: str = "",
    restart_attempt: int = 0,
    coordinator: str | None = None,
) -> dict[str, str]:
    """Return everything a host's container sees: the platform's part and the launcher's.

    Args:
        job: The job.
        job_name: Name of the JobSet.
        slice_index: 0 to slices-1.
        host_of_slice: 0 to hosts_per_slice-1.
        namespace: Namespace of the pod.
        node_name: Node of the pod.
        restart_attempt: How often the JobSet has restarted.
        coordinator: Where all hosts meet. Default: the name of host 0 of slice 0.
    """
    pod = f"{job_name}-{wire.REPLICATED_JOB}-{slice_index}-{host_of_slice}"
    return gke_environment(job, job_name, slice_index, host_of_slice) | {
        wire.ENV_SLICE_INDEX: str(slice_index),
        wire.ENV_RESTART_ATTEMPT: str(restart_attempt),
        wire.ENV_POD_NAME: pod,
        wire.ENV_POD_NAMESPACE: namespace,
        wire.ENV_NODE_NAME: node_name,
        wire.ENV_COORDINATOR: coordinator or host_name(job_name, 0, 0),
    }


def _commas(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values)
