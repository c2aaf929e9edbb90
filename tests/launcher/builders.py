"""Plans for tests: a small valid job on a cluster, plus only what a test is about."""

from __future__ import annotations

import json
from typing import Any

from tests.builders import job_document
from tpulaunch.plan import JobPlan, make_plan
from tpuworker.errors import Fault, SpecError
from tpuworker.spec import load_job

IMAGE = "example.com/tpuworker@sha256:" + "0" * 64


def spec_text(**sections: Any) -> str:
    """Return the text of a small valid job with an image; see :func:`tests.builders.job_document`."""
    sections["worker"] = {"image": IMAGE, **sections.get("worker", {})}
    return json.dumps(job_document(**sections), indent=1, ensure_ascii=False)


def plan_of(**sections: Any) -> JobPlan:
    """Return the plan of a small valid job."""
    text = spec_text(**sections)
    return make_plan(load_job(text), text)


def refusals_of(**sections: Any) -> list[Fault]:
    """Return the faults for which a job is refused, by the spec or by the plan; none if it is good."""
    try:
        plan_of(**sections)
    except SpecError as error:
        return list(error.faults)
    return []


def refused_paths(**sections: Any) -> list[str]:
    """Return the paths of the faults for which a job is refused."""
    return [fault.path for fault in refusals_of(**sections)]


def environment_of(plan: JobPlan) -> dict[str, Any]:
    """Return the variables of the first container by name."""
    return {variable.name: variable for variable in plan.container.env}
