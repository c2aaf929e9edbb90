"""``tpulaunch run --local``: every host of the job as a process of this machine, told what GKE would tell it."""

from tpulaunch.local.run import run

__all__ = ["run"]
