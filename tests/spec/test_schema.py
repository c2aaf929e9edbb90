"""The JSON Schema: kept as a golden so that a change of the spec is seen, and true to what the spec accepts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.builders import job_document
from tpuworker.spec.schema import schema_text

GOLDEN = Path(__file__).parent / "job.schema.json"
EXAMPLES = sorted((Path(__file__).parents[2] / "manifests/examples").glob("*.yaml"))


def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_text())
    return loaded


def test_the_schema_is_the_golden() -> None:
    if os.environ.get("REGENERATE_GOLDENS"):
        GOLDEN.write_text(schema_text())
    assert schema_text() == GOLDEN.read_text(), "REGENERATE_GOLDENS=1 writes it anew"


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_editor_accepts_every_example(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), schema())


@pytest.mark.parametrize(
    "sections",
    [
        {"slice": {"topolgy": "4x4"}},
        {"data": {"max_length": "16"}},
        {"worker": {"backend": "torch"}},
        {"schedule": {"restarts": -1}},
    ],
)
def test_an_editor_refuses_what_the_launcher_refuses(sections: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job_document(**sections), schema())


def test_every_field_is_explained() -> None:
    def silent(model: str, fields: dict[str, Any]) -> list[str]:
        one_of_three = {"VolumeSpec.gcsfuse", "VolumeSpec.pvc", "VolumeSpec.scratch"}
        sections = {"JobSpec", "TPUJob", "SkipPolicy"}
        return [
            f"{model}.{name}"
            for name, field in fields.items()
            if model not in sections
            and not {"description", "$ref"} & field.keys()
            and f"{model}.{name}" not in one_of_three
        ]

    whole = schema()
    models = {**whole["$defs"], "TPUJob": whole}
    assert [word for name, model in models.items() for word in silent(name, model.get("properties", {}))] == []
