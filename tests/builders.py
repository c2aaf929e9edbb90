"""Jobs for tests: defaults for everything, plus only what a test is about."""

from __future__ import annotations

import json
from typing import Any

from tpuworker.spec import TPUJob, load_job


def job_document(**sections: Any) -> dict[str, Any]:
    """Return the document of a small valid job; each keyword replaces keys of that section (nested mappings merge).

    ``make_job(slice={"topology": "2x4", "machine": ...})`` keeps the generation; ``metadata`` is a section too.
    """
    document: dict[str, Any] = {
        "apiVersion": "tpulaunch.dev/v1alpha1",
        "kind": "TPUJob",
        "metadata": {"name": "tiny"},
        "spec": {
            "slice": {"generation": "v6e", "topology": "4x4"},
            "worker": {"backend": "jax"},
            "data": {
                "sources": [{"files": "corpus/*.parquet"}],
                "tokenizer": {"path": "tokenizer.json"},
                "max_length": 16,
                "global_batch_size": 64,
            },
            "train": {"entrypoint": "trainer.main"},
        },
    }
    for section, values in sections.items():
        place = document if section == "metadata" else document["spec"]
        place[section] = {**place.get(section, {}), **values}
    return document


def make_job(**sections: Any) -> TPUJob:
    """Return a small valid job, see :func:`job_document`."""
    return load_job(json.dumps(job_document(**sections)))
