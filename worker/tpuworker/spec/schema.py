"""The JSON Schema of the spec: what editors check while a job is written."""

from __future__ import annotations

import json

from tpuworker.spec.job import API_VERSION, TPUJob


def schema_text() -> str:
    """Return the schema (draft 2020-12) as indented JSON, keys as the document spells them."""
    schema = TPUJob.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"https://{API_VERSION}/job.schema.json"}
    return json.dumps({**head, **schema}, indent=2, ensure_ascii=False) + "\n"
