"""Why a job failed: the first host that did, with its exit code, last words, or the disruption that ended it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import MappingProxyType

from tpulaunch.cluster.conditions import HostPhase, condition_of, host_phase_of, terminal_condition
from tpulaunch.cluster.explain.cause import Cause, about, first_line
from tpulaunch.cluster.objects import Object, dig, name_of, parse_time
from tpulaunch.cluster.progress import Progress, read_termination, terminated_state
from tpulaunch.cluster.state import Observation, job_state, place_of

_BY_EXIT_CODE = re.compile(r"Container (\S+) for pod (\S+)/(\S+) failed with exit code (\d+)")
_BY_CONDITION = re.compile(r"Pod (\S+)/(\S+) has condition (\S+) matching")
_PLACE = re.compile(r"-(\d+)-(\d+)(?:-[a-z0-9]{5})?$")
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)

#: Exit codes people meet: what they mean and what to do.
EXIT_CODES: MappingProxyType[int, tuple[str, str]] = MappingProxyType(
    {
        1: ("the program ended with an error", "read its last lines"),
        2: ("the spec, the identity or the command line was refused", "read its last lines and mend the spec"),
        3: ("preflight refused the job", "read which host and value it names"),
        42: (
            "the worker asked for a restart: the platform failed under it",
            "look at the hosts' last lines for a common cause",
        ),
        125: ("the container's program could not be run", "look at spec.train.command and the image"),
        126: ("the program is not executable", "look at spec.train.command and the image"),
        127: ("the program was not found in the image", "look at spec.train.command and the image"),
        134: (
            "the program aborted (SIGABRT): a failed check in libtpu, or a collective that timed out",
            "read its last lines",
        ),
        137: (
            "the program was killed (SIGKILL), most likely out of memory, or it did not end within its grace",
            "lower the memory use (shuffle.buffer_size, batch) or raise spec.worker.memory_gib",
        ),
        139: ("the program crashed (SIGSEGV)", "read its last lines; a native library is at fault"),
        143: (
            "the program was asked to end (SIGTERM)",
            "look for an eviction, a maintenance or a preemption at that time",
        ),
    }
)

_DISRUPTIONS = MappingProxyType(
    {
        "EvictionByEvictionAPI": "it was evicted through the API (a drain, or maintenance)",
        "PreemptionByScheduler": "a pod of higher priority took its place",
        "DeletionByTaintManager": "its node was lost or tainted",
        "DeletionByPodGC": "its node is gone",
        "TerminationByKubelet": "its node ended it (shutdown, or short of memory or disk)",
    }
)


def explain_failure(observed: Observation) -> Cause | None:
    """Return why the job, or its present attempt, failed; None if nothing tells."""
    cause = _first_failed_pod(observed) or _from_jobs(observed)
    end = terminal_condition(observed.jobset)
    if end is None or end.type != "Failed":
        return cause
    if cause is None:
        return Cause(
            "failed",
            f"the job failed: {end.reason}",
            f"read its log if it is still there: tpulaunch logs {name_of(observed.jobset)}",
            about(observed.jobset),
            first_line(end.message),
        )
    state = job_state(observed)
    if end.reason == "ReachedMaxRestarts" and state.max_restarts:
        tail = f"; this was the last of {state.max_restarts} restarts that count"
        return Cause(cause.code, cause.cause + tail, cause.remedy, cause.about, cause.evidence, cause.is_fault)
    return cause


def _first_failed_pod(observed: Observation) -> Cause | None:
    failed = [pod for pod in observed.pods if host_phase_of(pod) is HostPhase.FAILED or _crashed(pod)]
    if not failed:
        return None
    first = min(failed, key=_order_of_failure)
    said = read_termination(first)
    if said and said.failed_host:  # hosts fail together: the others end with the message of the one that is at fault
        first = next((pod for pod in failed if _host_label(pod) == said.failed_host), first)
    return _pod(observed, first)


def _crashed(pod: Object) -> bool:
    return bool(terminated_state(pod).get("exitCode"))


def _order_of_failure(pod: Object) -> tuple[bool, datetime, tuple[int, int]]:
    """Real failures before pods that were ended because of them (SIGTERM, no code), then by time."""
    state = terminated_state(pod)
    is_consequence = state.get("exitCode") in (143, None) and condition_of(pod, "DisruptionTarget") is None
    return is_consequence, parse_time(state.get("finishedAt")) or _NEVER, place_of(pod) or (0, 0)


def _pod(observed: Observation, pod: Object) -> Cause:
    host = _host_label(pod)
    disrupted = condition_of(pod, "DisruptionTarget")
    if disrupted and disrupted.is_true:
        why = _DISRUPTIONS.get(disrupted.reason, disrupted.reason)
        return Cause(
            "disrupted",
            f"host {host} was taken away: {why}",
            "nothing: the job restarts, and this does not use up its restarts",
            about(pod),
            first_line(disrupted.message),
            is_fault=False,
        )
    state = terminated_state(pod)
    code = state.get("exitCode")
    if not state or code is None:
        reason = str(dig(pod, "status", "reason", default="")) or "no reason given"
        return Cause(
            "pod-refused-by-node",
            f"node {dig(pod, 'spec', 'nodeName', default='?')} refused host {host}: {reason}",
            "look at the node's device plugin and free chips; a restart may find another node",
            about(pod),
            first_line(str(dig(pod, "status", "message", default=""))),
        )
    words = read_termination(pod)
    if words and words.failed_host:  # it ended with another's failure, whose own pod has not ended, or is gone
        host = words.failed_host
    return _ended(observed, host, int(code), reason=str(state.get("reason") or ""), words=words, whose=about(pod))


def _ended(
    observed: Observation, host: str, code: int, *, reason: str = "", words: Progress | None = None, whose: str
) -> Cause:
    last = first_line(words.message).removeprefix(f"host {host}: ") if words else ""
    log = f"tpulaunch logs {name_of(observed.jobset)} --host {host} --tail 50"
    if reason in ("StartError", "ContainerCannotRun"):
        return Cause(
            "container-not-started",
            f"host {host}: the container cannot be started: {last.rpartition('container process: ')[2]}",
            "look at spec.worker.image: it must hold tpuworker, for this architecture",
            whose,
            last,
        )
    if reason == "OOMKilled" or (words and words.reason == "OOMKilled"):
        return Cause(
            "oom",
            f"host {host} was the first to fail: out of memory (OOMKilled, exit code {code})",
            EXIT_CODES[137][1],
            whose,
            last,
        )
    if code == 137:
        return Cause(
            "oom-likely", f"host {host} was the first to fail: {EXIT_CODES[137][0]}", EXIT_CODES[137][1], whose, last
        )
    if code == 3 and (words is None or words.reason in ("PreflightError", "") or words.verdict):
        return Cause(
            "preflight-refused",
            f"preflight refused the job on host {host}" + (f": {last}" if last else ""),
            "mend what it names, then submit with --replace",
            whose,
            words.message if words else "",
        )
    meaning, remedy = EXIT_CODES.get(code, ("the program ended with an error of its own", "read its last lines"))
    return Cause(
        f"exit-{code}",
        f"host {host} was the first to fail, with exit code {code}" + (f": {last}" if last else f": {meaning}"),
        f"{remedy}: {log}" if "last lines" in remedy else remedy,
        whose,
        last,
    )


def _from_jobs(observed: Observation) -> Cause | None:
    """Read the Jobs' own conditions: they name pod and exit code even when the pods are gone."""
    ends = [(job, end) for job in observed.jobs if (end := terminal_condition(job)) and end.type == "Failed"]
    ends.sort(key=lambda pair: pair[1].since or _NEVER)
    for job, end in ends:
        if found := _BY_EXIT_CODE.search(end.message):
            return _ended(observed, _place_in(found[3]), int(found[4]), whose=f"Pod {found[3]}")
        if found := _BY_CONDITION.search(end.message):
            return Cause(
                "disrupted",
                f"host {_place_in(found[2])} was taken away ({found[3]})",
                "nothing: the job restarts, and this does not use up its restarts",
                f"Pod {found[2]}",
                first_line(end.message),
                is_fault=False,
            )
        if end.reason == "DeadlineExceeded":
            return Cause(
                "deadline",
                f"{about(job)} ran longer than spec.schedule.max_run_seconds allows",
                "raise max_run_seconds, or checkpoint and submit again",
                about(job),
                first_line(end.message),
            )
    return None


def _host_label(pod: Object) -> str:
    slice_index, host = place_of(pod) or (0, 0)
    return f"{slice_index}/{host}"


def _place_in(pod_name: str) -> str:
    found = _PLACE.search(pod_name)
    return f"{found[1]}/{found[2]}" if found else pod_name
