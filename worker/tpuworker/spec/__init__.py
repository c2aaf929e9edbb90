"""What was asked for; pure pydantic; the only room the launcher may enter."""

from tpuworker.spec.document import load_job
from tpuworker.spec.job import TPUJob

__all__ = ["TPUJob", "load_job"]
