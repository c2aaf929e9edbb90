"""``tpulaunch init``: a commented spec to start from, with the columns that the data really has."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tpulaunch.cli.output import emit, remark
from tpulaunch.errors import InputError

if TYPE_CHECKING:
    from tpuworker.spec.tpu import SliceShape

_PLACEHOLDER = "gs://BUCKET/data/part-*.parquet"
_ROWS_PER_DEVICE = 8
_CONVERSATION_COLUMNS = ("messages", "conversations")
_TEXT_COLUMNS = ("text", "data")
#: Trainers that come with tpulaunch, so that the first spec runs.
_TRAINERS = {"jax": "tpuworker.training.jax_lm.main", "torch_xla": "tpuworker.training.torch_xla_lm.main"}

Backend = Literal["torch_xla", "jax"]


@dataclass(frozen=True)
class Start:
    """What the first spec says."""

    name: str
    generation: str
    topology: str
    machine: str | None
    count: int
    image: str | None
    backend: str
    task: str
    patterns: tuple[str, ...]
    column_key: str | None
    column: str | None
    tokenizer: str
    max_length: int
    layout: str
    num_devices: int
    global_batch_size: int
    entrypoint: str


def init(
    file: Annotated[str, typer.Argument(help="Where to write; - is stdout.")] = "job.yaml",
    *,
    data: Annotated[
        list[str] | None, typer.Option(help="Pattern of data files; their columns are looked at.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job. Default: the directory's.")] = None,
    generation: Annotated[str | None, typer.Option(help="TPU generation, see tpulaunch tpus.")] = None,
    topology: Annotated[str | None, typer.Option(help="Topology of a slice.")] = None,
    machine: Annotated[str | None, typer.Option(help="Machine type, where the topology leaves a choice.")] = None,
    count: Annotated[int, typer.Option(help="Slices.", min=1)] = 1,
    backend: Annotated[Backend, typer.Option(help="torch_xla or jax.")] = "torch_xla",
    image: Annotated[str | None, typer.Option(help="The worker's image.", show_default=False)] = None,
    tokenizer: Annotated[str, typer.Option(help="Hub name, directory, or a tokenizer.json.")] = "gpt2",
    max_length: Annotated[int, typer.Option(help="Tokens of a row.", min=2)] = 2048,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented spec to start from.

    With --data the files are looked at, if the worker's packages are installed, and the task and the column are set
    to what they hold.
    """
    path = None if file == "-" else Path(file)
    if path is not None and path.exists() and not force:
        raise InputError(f"{file}: exists; --force replaces it")
    from tpulaunch.names import dns_label

    shape = _shape(generation, topology, machine)
    task, column_key, column = _look_at(data)
    num_devices = count * shape.hosts * shape.devices_per_host
    start = Start(
        name=name or dns_label(Path.cwd().name)[:20].rstrip("-"),
        generation=shape.generation.name,
        topology="x".join(map(str, shape.topology)),
        machine=shape.machine.name if machine else None,
        count=count,
        image=image,
        backend=backend,
        task=task,
        patterns=tuple(data or [_PLACEHOLDER]),
        column_key=column_key,
        column=column,
        tokenizer=tokenizer,
        max_length=max_length,
        layout="pad",
        num_devices=num_devices,
        global_batch_size=num_devices * _ROWS_PER_DEVICE,
        entrypoint=_TRAINERS[backend],
    )
    text = starting_spec(start)
    if path is None:
        emit(text)
        return
    try:
        _write(path, text)
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    sys.stderr.write(f"{file}: written; tpulaunch validate {file} checks it\n")


def starting_spec(start: Start) -> str:
    """Return the text of a first spec.

    Raises:
        SpecError: What was asked for makes no valid job.
    """
    from tpulaunch.render import template
    from tpuworker.spec import load_job

    text = template("job.yaml.j2").render(start=start)
    load_job(text, "the spec asked for")
    return text


def _shape(generation: str | None, topology: str | None, machine: str | None) -> SliceShape:
    """Return the slice asked for, or a small one of the generation asked for."""
    from tpuworker.spec.tpu import (
        STARTER_GENERATION,
        STARTER_TOPOLOGY,
        find_generation,
        nearest_generation,
        parse_topology,
    )

    found = find_generation(generation or STARTER_GENERATION)
    if found is None:
        raise InputError(
            f"--generation: found {generation}; wanted a TPU generation; write {nearest_generation(generation or '')}"
        )
    wanted = parse_topology(topology or STARTER_TOPOLOGY)
    shapes = list(found.shapes())
    fitting = [s for s in shapes if s.topology == wanted and machine in (None, s.machine.name)]
    if not fitting and topology is None:
        fitting = [next(shape for shape in shapes if shape.hosts > 1)]
    if len(fitting) != 1:
        names = sorted({s.machine.name for s in shapes if s.topology == wanted})
        if names:
            raise InputError(
                f"--machine: found {machine or 'none'}; wanted {' or '.join(names)}, each of which forms {topology}"
            )
        near = ", ".join("x".join(map(str, t)) for t in found.nearest_topologies(wanted or (4,) * found.dimensions))
        raise InputError(f"--topology: found {topology}; wanted a {found.name} topology; the nearest are {near}")
    return fitting[0]


def _look_at(patterns: list[str] | None) -> tuple[str, str | None, str | None]:
    """Return task, key and name of the column that the data has; the key is None where the default finds it."""
    from tpulaunch.cli.worker_process import ask_about_data, has_worker

    if not patterns:
        return "pretrain", None, None
    if not has_worker():
        remark("--data", "not looked at: pip install 'tpulaunch[jax]' brings what reads it")
        return "pretrain", None, None
    told = ask_about_data("columns", *patterns)
    columns = {column["name"]: str(column["type"]) for column in told["columns"]}
    listed = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
    sys.stderr.write(f"--data: {told['files']} files of {told['format']}; columns {listed}\n")
    return choose_column(columns)


def choose_column(columns: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Return task, key and name of the column to train on, by the names and types of all columns.

    Raises:
        InputError: None of them holds text or conversations.
    """
    if any(name in columns for name in _CONVERSATION_COLUMNS):
        return "conversation", None, None
    if any(name in columns for name in _TEXT_COLUMNS):
        return "pretrain", None, None
    texts = [name for name, kind in columns.items() if kind in ("string", "large_string", "string_view")]
    if texts:
        return "pretrain", "text_column", texts[0]
    turns = [name for name, kind in columns.items() if kind.startswith(("list<", "large_list<")) and "struct<" in kind]
    if turns:
        return "conversation", "conversation_column", turns[0]
    raise InputError(f"--data: found columns {', '.join(columns) or 'none'}; wanted one with text or conversations")


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
