"""Functions for training scripts: loaders and datasets for PyTorch/XLA and JAX over the job's own data engine.

Names are loaded when they are first used, so that a JAX program never imports torch and a torch program never JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuworker.api.dataloader import BatchLoader, create_dataloader, create_deterministic_dataloader
    from tpuworker.api.jax_dataset import JaxDataset, create_jax_dataset
    from tpuworker.api.streaming import StreamingDataset
    from tpuworker.api.token_stream import TokenStream, create_streaming_dataset
    from tpuworker.api.training_datasets import ConversationDataset, PretrainDataset
    from tpuworker.api.world import World, find_world

#: Public name to the module that defines it.
_HOMES = {
    "BatchLoader": "dataloader",
    "ConversationDataset": "training_datasets",
    "JaxDataset": "jax_dataset",
    "PretrainDataset": "training_datasets",
    "StreamingDataset": "streaming",
    "TokenStream": "token_stream",
    "World": "world",
    "create_dataloader": "dataloader",
    "create_deterministic_dataloader": "dataloader",
    "create_jax_dataset": "jax_dataset",
    "create_streaming_dataset": "token_stream",
    "find_world": "world",
}

__all__ = [
    "BatchLoader",
    "ConversationDataset",
    "JaxDataset",
    "PretrainDataset",
    "StreamingDataset",
    "TokenStream",
    "World",
    "create_dataloader",
    "create_deterministic_dataloader",
    "create_jax_dataset",
    "create_streaming_dataset",
    "find_world",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
