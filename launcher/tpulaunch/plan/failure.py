"""Which failures restart the job, which count, and which end it at once.

What happened                     Job                       JobSet
eviction, maintenance, preemption fails by rule 1           restarts, never counted
exit 1..41, 43..127 (a bug)       fails by rule 2           fails at once: a restart cannot cure it
exit 42, 128.. (signals)          fails, backoffLimit 0     restarts, counted by maxRestarts
longer than max_run_seconds       fails by its deadline     fails at once: it would run as long again

With several hosts a lost pod must restart the whole slice, since its peers hang in a collective: FailJob, never Ignore.
"""

from __future__ import annotations

from tpulaunch.plan.values import JobSetFailureRule, PodFailureRule
from tpuworker.spec.wire import EXIT_RESTART

_SIGNALS = tuple(range(128, 256))

# Names follow JobSet's rule: letters, digits, ``_`` ``,`` ``:`` and no hyphen. The patterns match the messages of
# Kubernetes' Job controller (pod_failure_policy.go, job_controller.go), which JobSet finds in the Job's condition.
_DISRUPTION = JobSetFailureRule(
    "disruption", "RestartJobSetAndIgnoreMaxRestarts", "has condition DisruptionTarget matching FailJob rule"
)
_INCURABLE = JobSetFailureRule("incurable", "FailJobSet", r"failed with exit code \d+ matching FailJob rule")
_OVERTIME = JobSetFailureRule("overtime", "FailJobSet", "longer than specified deadline", "DeadlineExceeded")


def jobset_rules(*, has_deadline: bool) -> tuple[JobSetFailureRule, ...]:
    """Return the rules of a JobSet, first match decides; what none matches restarts, and counts."""
    return (_DISRUPTION, _INCURABLE, *((_OVERTIME,) if has_deadline else ()))


def pod_rules(container: str) -> tuple[PodFailureRule, ...]:
    """Return the rules of a Job; the container is named, else a side container's exit code would be judged too."""
    curable = (EXIT_RESTART, *_SIGNALS)
    return (
        PodFailureRule(condition="DisruptionTarget"),
        PodFailureRule(container=container, not_in_exit_codes=curable),
    )
