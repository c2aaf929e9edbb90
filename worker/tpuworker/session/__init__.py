"""A training run on one host: opened by proof, handed to the training function, ended with last words."""

from tpuworker.session.training import Session, attach

__all__ = ["Session", "attach"]
