"""Whatever keeps a job from running is told as one cause with one remedy; each case is made to happen for real."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import MORE_THAN_TWO_GIB, TWO_HOSTS, User, eventually
from tests.e2e.recording import write_recording
from tpulaunch.cluster.explain import Cause, explain
from tpulaunch.cluster.observe import observe

pytestmark = pytest.mark.cluster

FOREVER = "sleep 1000"
SMALL = {"memory_gib": 2, "shared_memory_gib": 1}
PREFLIGHT_WORDS = (
    '{"severity":"ERROR","event":"end","exit_code":3,"reason":"PreflightError","message":"host 0/1: found 7 files; '
    'wanted 8, as host 0/0 has","preflight":{"verdict":"refused"}}'
)


def _nothing(user: User) -> None:
    pass


@dataclass(frozen=True)
class Case:
    """One thing that goes wrong: what is done before, what is submitted, what is done then, and what must be told."""

    code: str
    words: str
    remedy: str
    script: str = FOREVER
    before: Callable[[User], None] = _nothing
    during: Callable[[User], None] = _nothing
    after: Callable[[User], None] = _nothing
    sections: dict[str, Any] = field(default_factory=dict)


def _queue(chips: int) -> Callable[[User], None]:
    def make(user: User) -> None:
        user.cluster.require("kueue")
        user.cluster.make_queue(user.namespace, chips=chips)

    return make


def _busy_queue(user: User) -> None:
    _queue(4)(user)
    user.submits(FOREVER, name="first", schedule={"queue": "tpu"})
    eventually(lambda: user.types("status", "first", "-o", "json").data["hosts"][0]["node"], bool)


def _stopped_queue(user: User) -> None:
    _queue(8)(user)
    user.cluster.patch("ClusterQueue", f"{user.namespace}-tpu", {"spec": {"stopPolicy": "Hold"}})


def _queue_of_two_priorities(user: User) -> None:
    _queue(4)(user)
    rules = {"withinClusterQueue": "LowerPriority"}
    user.cluster.patch("ClusterQueue", f"{user.namespace}-tpu", {"spec": {"preemption": rules}})
    for name, value in (("low", 1), ("high", 1000)):
        user.cluster.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )


def _job_of_higher_priority(user: User) -> None:
    eventually(lambda: user.types("status", "tiny", "-o", "json").data["phase"], lambda phase: phase == "Running")
    user.submits(FOREVER, name="urgent", schedule={"queue": "tpu", "priority": "high"})
    eventually(lambda: user.types("status", "urgent", "-o", "json").data["phase"], lambda phase: phase == "Running")


def _node_without_chips(user: User) -> None:
    user.cluster.require("node-control")
    user.cluster.set_chips("v5e-0", 1)  # type: ignore[attr-defined]


def _all_chips(user: User) -> None:
    user.cluster.set_chips("v5e-0", 4)  # type: ignore[attr-defined]


def _autoscaler_speaks(user: User) -> None:
    """Write the event with which GKE's cluster autoscaler says that it is making nodes; none runs here."""

    def pods() -> list[Any]:
        return user.cluster.list("Pod", user.namespace)

    [pod] = eventually(pods, lambda found: bool(found and found[0]["status"].get("conditions")))
    group = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-c-v5e-spot-1a2b3c4d-grp"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod['metadata']['name']}.scale-up", "namespace": user.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": user.namespace,
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
        "reason": "TriggeredScaleUp",
        "message": f"pod triggered scale-up: [{{{group} 0->1 (max: 4)}}]",
        "type": "Normal",
        "source": {"component": "cluster-autoscaler"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    user.cluster.create(event, user.namespace)


def _busy_node(user: User) -> None:
    user.submits(FOREVER, name="first")
    eventually(lambda: user.types("status", "first", "-o", "json").data["hosts"][0]["node"], bool)


def _secret(user: User) -> None:
    user.cluster.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}, "stringData": {"a": "b"}}, user.namespace
    )


def _restricted(user: User) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    user.cluster.patch("Namespace", user.namespace, {"metadata": {"labels": labels}})


def _quota(user: User) -> None:
    spec = {"hard": {"pods": "0"}}
    user.cluster.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}, user.namespace
    )


CASES = {
    "missing queue": Case(
        "queue-missing",
        "the queue 'nowhere' does not exist",
        "spec.schedule.queue to one of: tpu",
        before=_queue(8),
        sections={"schedule": {"queue": "nowhere"}},
    ),
    "quota too small": Case(
        "quota-too-small",
        "asks for 16 google.com/tpu; queue 'tpu' has at most 8",
        "fewer slices",
        before=_queue(8),
        sections={"schedule": {"queue": "tpu"}, "slice": {**TWO_HOSTS, "count": 2}},
    ),
    "quota in use": Case(
        "quota-short",
        "too little unused quota: 4 more google.com/tpu needed",
        "wait for other jobs",
        before=_busy_queue,
        sections={"schedule": {"queue": "tpu"}},
    ),
    "no node of the generation": Case(
        "no-such-node",
        "gke-tpu-accelerator=tpu-v5p-slice; the cluster has tpu-v5-lite-podslice, tpu-v6e-slice",
        "create a node pool",
        sections={"slice": {"generation": "v5p", "topology": "2x2x1"}},
    ),
    "no node of the topology": Case(
        "no-such-node",
        "no node of tpu-v6e-slice has topology 4x4; there are 2x4",
        "create a node pool",
        sections={"slice": {"generation": "v6e", "topology": "4x4"}},
    ),
    "no spot node": Case(
        "no-such-node",
        "no tpu-v5-lite-podslice 2x2 node has cloud.google.com/gke-spot=true",
        "spec.schedule.capacity",
        sections={"schedule": {"capacity": "spot"}},
    ),
    "nodes in use": Case("nodes-busy", "1 host wait for 4 chips each", "wait for other jobs", before=_busy_node),
    "image": Case(
        "image-pull",
        "host 0/0: the image localhost/nobody/nothing:1 cannot be pulled",
        "spec.worker.image",
        sections={"worker": {"image": "localhost/nobody/nothing:1"}},
    ),
    "missing secret": Case(
        "secret-missing",
        "the Secret 'hf' does not exist",
        "create secret generic hf",
        sections={"train": {"secrets": {"HF_TOKEN": {"secret": "hf", "key": "token"}}}},
    ),
    "missing key of a secret": Case(
        "secret-key-missing",
        "the Secret 'hf' has no key 'token'",
        "add the key",
        before=_secret,
        sections={"train": {"secrets": {"HF_TOKEN": {"secret": "hf", "key": "token"}}}},
    ),
    "missing service account": Case(
        "service-account-missing",
        "the service account 'trainer' does not exist",
        "create serviceaccount trainer",
        sections={"worker": {"service_account": "trainer"}},
    ),
    "missing priority class": Case(
        "priority-class-missing",
        "the PriorityClass 'urgent' does not exist",
        "kubectl get priorityclass",
        sections={"schedule": {"priority_class": "urgent"}},
    ),
    "missing claim": Case(
        "claim-missing",
        "the PersistentVolumeClaim 'corpus' does not exist",
        "spec.worker.volumes",
        sections={"worker": {"volumes": [{"name": "data", "mount_path": "/data", "pvc": {"claim": "corpus"}}]}},
    ),
    "pods refused by PodSecurity": Case(
        "pod-security",
        "enforces PodSecurity 'restricted:latest'",
        "privileged",
        before=_restricted,
        sections={"worker": {"privileged": True, "user": 0}},
    ),
    "resource quota": Case(
        "resource-quota", "the ResourceQuota 'none' is used up", "have the quota raised", before=_quota
    ),
    "program not in the image": Case(
        "container-not-started",
        'host 0/0: the container cannot be started: exec: "tpuworker": executable file not found',
        "it must hold tpuworker",
        sections={"worker": {"image": "localhost/tpulaunch-test/busybox:1"}, "schedule": {"restarts": 0}},
    ),
    "out of memory": Case(
        "oom",
        "host 0/0 was the first to fail: out of memory",
        "memory_gib",
        script=MORE_THAN_TWO_GIB,
        sections={"worker": SMALL, "schedule": {"restarts": 0}},
    ),
    "killed without a reason": Case(
        "oom-likely",
        "most likely out of memory",
        "memory_gib",
        script="sh -c 'kill -9 $$'; exit $?",
        sections={"schedule": {"restarts": 0}},
    ),
    "preflight": Case(
        "preflight-refused",
        "preflight refused the job on host 0/1: found 7 files; wanted 8",
        "--replace",
        script="[ $JOB_COMPLETION_INDEX = 0 ] && exec sleep 100; "
        f"echo '{PREFLIGHT_WORDS}' > /dev/termination-log; exit 3",
        sections={"slice": TWO_HOSTS},
    ),
    "user error": Case(
        "exit-1",
        "host 0/1 was the first to fail, with exit code 1: ValueError: no such column",
        "tpulaunch logs tiny --host 0/1",
        script="[ $JOB_COMPLETION_INDEX = 0 ] && exec sleep 100; echo ValueError: no such column; exit 1",
        sections={"slice": TWO_HOSTS},
    ),
    "restarts used up": Case(
        "exit-42",
        "this was the last of 1 restarts that count",
        "common cause",
        script="exit 42",
        sections={"schedule": {"restarts": 1}},
    ),
    "too few chips": Case(
        "too-few-chips",
        "each host asks for 4 chips; the matching nodes offer 1",
        "device plugin",
        before=_node_without_chips,
        after=_all_chips,
    ),
    "scale-up under way": Case(
        "scale-up",
        "nodes are being added for the job",
        "wait: a slice takes some minutes",
        during=_autoscaler_speaks,
        sections={"schedule": {"capacity": "spot"}},
    ),
    "preempted in the queue": Case(
        "evicted",
        "was preempted by another job and waits in queue 'tpu'",
        "higher spec.schedule.priority",
        before=_queue_of_two_priorities,
        during=_job_of_higher_priority,
        sections={"schedule": {"queue": "tpu", "priority": "low"}},
    ),
    "stopped queue": Case(
        "queue-inactive",
        "takes no jobs: Stopped",
        "another",
        before=_stopped_queue,
        sections={"schedule": {"queue": "tpu"}},
    ),
    "run too long": Case(
        "deadline",
        "ran longer than spec.schedule.max_run_seconds allows",
        "raise max_run_seconds",
        sections={"schedule": {"max_run_seconds": 30}},
    ),
    "leader of a slice without nodes": Case(
        "no-free-pool",
        "finds no node pool of its own: 2 pools of the right kind (v6e-a, v6e-b)",
        "node pool",
        sections={"slice": {**TWO_HOSTS, "count": 3}, "data": {"global_batch_size": 48}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_told_with_its_remedy(user: User, case: str) -> None:
    wanted = CASES[case]
    try:
        wanted.before(user)
        user.submits(wanted.script, **wanted.sections)
        wanted.during(user)
        cause = _settled(user, wanted, case)
        shown = user.types("status", "tiny").out
    finally:
        wanted.after(user)
    assert wanted.words in cause.cause
    assert wanted.remedy in cause.remedy
    assert cause.cause in shown
    assert cause.remedy in shown


def _settled(user: User, wanted: Case, case: str) -> Cause:
    last: list[Any] = []

    def look() -> Cause | None:
        last[:] = [observe(user.job(), with_progress=False)]
        return explain(last[0])

    try:
        found = eventually(look, lambda c: c is not None and c.code == wanted.code and wanted.words in c.cause)
    finally:
        if folder := os.environ.get("TPULAUNCH_RECORD"):
            write_recording(Path(folder) / f"{case.lower().replace(' ', '-')}.json", last[0])
    assert found is not None
    return found
