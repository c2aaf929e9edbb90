"""Where the pods may run: node labels they ask for and taints they bear, by consumption option.

The keys and their pairing are GKE's own (its autoscaler's source): a Spot or flex-start toleration alone means
"second choice" or is an error, so each comes with its selector.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpulaunch.plan.values import Pairs, Toleration
from tpuworker.spec.job import TPUJob
from tpuworker.spec.schedule import ReservationSpec, ScheduleSpec
from tpuworker.spec.tpu import format_topology

#: Resource name of a chip, and key of the taint that GKE puts on every TPU node.
TPU_RESOURCE = "google.com/tpu"
_GKE = "cloud.google.com/"
#: Node label whose values are the node pools: one slice, one pool.
NODE_POOL_LABEL = f"{_GKE}gke-nodepool"


@dataclass(frozen=True)
class Capacity:
    """What a consumption option adds to the pods and to the JobSet.

    Attributes:
        node_selector: Labels that nodes must have.
        tolerations: Taints that nodes may have.
        annotations: Annotations of the JobSet that Kueue hands on to a ProvisioningRequest.
    """

    node_selector: Pairs
    tolerations: tuple[Toleration, ...] = ()
    annotations: Pairs = ()


def plan_capacity(job: TPUJob) -> Capacity:
    """Return the slice's own labels and taint, followed by those of the consumption option."""
    shape, schedule = job.spec.slice.shape, job.spec.schedule
    selector = [
        (f"{_GKE}gke-tpu-accelerator", shape.generation.accelerator_label),
        (f"{_GKE}gke-tpu-topology", format_topology(shape.topology)),
    ]
    if len(shape.generation.machines_for(shape.topology)) > 1:  # two machines form it: the chips of a node decide
        selector.append((f"{_GKE}gke-accelerator-count", str(shape.machine.chips)))
    if schedule.placement_policy is not None:
        selector.append((f"{_GKE}placement-policy-name", schedule.placement_policy))
    option = _option(schedule)
    # Many samples leave this toleration out and rely on an admission plug-in that no document promises.
    tpu = Toleration(TPU_RESOURCE, value=None)
    return Capacity((*selector, *option.node_selector), (tpu, *option.tolerations), option.annotations)


def _option(schedule: ScheduleSpec) -> Capacity:
    match schedule.capacity:
        case "spot":
            return _tainted("gke-spot")
        case "reservation":
            assert schedule.reservation is not None  # the spec demands it
            return Capacity(_reservation(schedule.reservation))
        case "flex-start":
            option = _tainted("gke-flex-start")
            seconds = schedule.max_run_seconds
            limit = () if seconds is None else ((f"{_GKE}gke-max-run-duration-seconds", str(seconds)),)
            return Capacity((*option.node_selector, *limit), option.tolerations)
        case "queued":
            # Queued TPU pools carry no run-duration label; the request itself takes the limit.
            option = _tainted("gke-queued")
            seconds = schedule.max_run_seconds
            limit = () if seconds is None else (("provreq.kueue.x-k8s.io/maxRunDurationSeconds", str(seconds)),)
            return Capacity(option.node_selector, option.tolerations, limit)
    if schedule.compute_class is not None:
        key = f"{_GKE}compute-class"
        return Capacity(((key, schedule.compute_class),), (Toleration(key, schedule.compute_class),))
    return Capacity(())


def _tainted(name: str) -> Capacity:
    key = f"{_GKE}{name}"
    return Capacity(((key, "true"),), (Toleration(key, "true"),))


def _reservation(reservation: ReservationSpec) -> Pairs:
    pairs = [
        ("reservation-name", reservation.name),
        ("reservation-project", reservation.project),
        ("reservation-affinity", reservation.affinity),
        ("reservation-blocks", reservation.block),
        ("reservation-subblocks", reservation.sub_block),
    ]
    return tuple((f"{_GKE}{name}", value) for name, value in pairs if value is not None)
