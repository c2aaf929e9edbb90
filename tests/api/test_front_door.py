"""What the package exports, and what comes along when a part of it is used, seen by a fresh interpreter."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tpuworker.api


def modules_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_loads_no_library() -> None:
    loaded = modules_after("import tpuworker.api")
    assert loaded.isdisjoint({"torch", "torch_xla", "jax", "numpy", "pyarrow", "datasets", "transformers"})


def test_functions_that_need_no_accelerator_library_load_none() -> None:
    loaded = modules_after("from tpuworker.api import create_streaming_dataset, create_jax_dataset, find_world")
    assert loaded.isdisjoint({"torch", "torch_xla", "jax", "datasets", "transformers"})


def test_an_unknown_name_is_none_of_it() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'create_everything'"):
        _ = tpuworker.api.create_everything


def test_what_is_listed_is_what_can_be_had() -> None:
    assert set(tpuworker.api.__all__) == set(dir(tpuworker.api)) == set(tpuworker.api._HOMES)


@pytest.mark.torch_xla
def test_signatures_are_those_that_programs_have() -> None:
    pytest.importorskip("torch")
    wanted = {
        "create_streaming_dataset": ["name", "split", "tokenizer", "max_length", "seed", "buffer_size"],
        "StreamingDataset": ["dataset", "world_size", "rank"],
        "create_dataloader": ["dataset", "batch_size", "world_size", "rank", "num_workers"],
        "create_deterministic_dataloader": ["name", "split", "batch_size", "tokenizer", "seed", "epoch"],
        "PretrainDataset": ["tokenizer", "dataset", "max_length", "text_column"],
        "ConversationDataset": ["tokenizer", "dataset", "max_length", "conversation_column"],
        "create_jax_dataset": ["name", "split", "batch_size", "seed"],
    }
    for name, arguments in wanted.items():
        made = getattr(tpuworker.api, name)
        parameters = inspect.signature(made.__init__ if inspect.isclass(made) else made).parameters.values()
        by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
        assert by_position == arguments
        assert made.__doc__
