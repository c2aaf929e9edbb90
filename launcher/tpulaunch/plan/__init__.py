"""TPUJob to JobPlan: each number, name, label and variable decided here, purely; one policy, one file."""

from tpulaunch.plan.environment import Switches
from tpulaunch.plan.make import MANAGED_BY, draft_plan, job_digest, make_plan
from tpulaunch.plan.values import JobPlan

__all__ = ["MANAGED_BY", "JobPlan", "Switches", "draft_plan", "job_digest", "make_plan"]
