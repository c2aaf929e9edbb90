"""``tpulaunch schema``: the JSON Schema of the spec, for editors and CI."""

from __future__ import annotations

from tpulaunch.cli.output import emit


def schema() -> None:
    """Print the JSON Schema of the spec.

    An editor checks a spec while it is typed: ``# yaml-language-server: $schema=job.schema.json`` as its first line.
    """
    from tpuworker.spec.schema import schema_text

    emit(schema_text())
