"""``tpulaunch render``: the exact objects that ``submit`` would send."""

from __future__ import annotations

from typing import Annotated

import typer

from tpulaunch.cli.output import Format, emit, emit_json, remark
from tpulaunch.cli.source import FileFlag, Files, Namespace, chosen, plan_source, read_source
from tpulaunch.errors import InputError


def render_objects(
    files: Files = None,
    filename: FileFlag = None,
    namespace: Namespace = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="yaml, json or name.", metavar="FORMAT", show_default=False)
    ] = Format.YAML,
) -> None:
    """Print the exact objects that submit would send.

    Needs neither cluster nor kubeconfig; ``tpulaunch render FILE | kubectl apply -f -`` works. Nothing is printed
    unless every file is good.
    """
    if output not in (Format.YAML, Format.JSON, Format.NAME):
        raise InputError(f"-o {output.value} is not for render; use yaml, json or name")
    from tpulaunch.check import wanted_object

    sources = [read_source(path) for path in chosen(files, filename)]
    planned = [plan_source(source, namespace) for source in sources]
    for source, (plan, _) in zip(sources, planned, strict=True):
        for sentence in plan.remarks:
            remark(source.where, sentence)
    if output is Format.YAML:
        emit("---\n".join(text for _, text in planned))
    elif output is Format.NAME:
        emit("\n".join(f"jobset.jobset.x-k8s.io/{plan.name}" for plan, _ in planned))
    elif len(planned) == 1:
        emit_json(wanted_object(planned[0][0]))
    else:
        emit_json({"apiVersion": "v1", "kind": "List", "items": [wanted_object(plan) for plan, _ in planned]})
