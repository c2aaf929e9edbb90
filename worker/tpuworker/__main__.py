"""``python -m tpuworker`` is the worker."""

from tpuworker.main import run

run()
