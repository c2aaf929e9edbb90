"""From int32 numpy batches to torch's long tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tpuworker.errors import Fault, SpecError

Tensors = dict[str, torch.Tensor]


def to_long(arrays: Mapping[str, Any]) -> Tensors:
    """Return int64 tensors of the same shapes; a copy, so that the engine may use its memory again."""
    return {name: torch.from_numpy(array).to(torch.int64) for name, array in arrays.items()}


def refuse_worker_process() -> None:
    """Raise SpecError inside a worker process of torch's own DataLoader."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is not None:
        found = "a worker process of torch.utils.data.DataLoader"
        hint = "use create_dataloader, or num_workers=0: each process would read every row, and fork hangs tokenizers"
        raise SpecError([Fault("num_workers", found, "threads of this process", hint)])
