"""The proof that is given before the first training step: same data, own share, one shape, equal steps, one program."""

from tpuworker.preflight.check import Proof, preflight
from tpuworker.preflight.files import Compared, compare_files
from tpuworker.preflight.verdict import Verdict

__all__ = ["Compared", "Proof", "Verdict", "compare_files", "preflight"]
