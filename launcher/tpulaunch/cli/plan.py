"""``tpulaunch plan``: what the data will be, in rows, lanes, steps and RAM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpulaunch.cli.output import Format, emit, emit_json, emit_table, remark
from tpulaunch.cli.source import OneFile, OneFileFlag, chosen_one, read_source
from tpulaunch.errors import InputError

if TYPE_CHECKING:
    from tpuworker.spec import TPUJob


def plan(
    file: OneFile = None,
    filename: OneFileFlag = None,
    output: Annotated[
        Format, typer.Option("-o", "--output", help="table or json.", metavar="FORMAT", show_default=False)
    ] = Format.TABLE,
    show: Annotated[
        int, typer.Option("--show", help="Rows of each source to show as text.", metavar="ROWS", min=0)
    ] = 0,
) -> None:
    """Show what the data will be: files, rows, lanes, steps, RAM; and rows as the model will get them.

    The files are listed and their footers read, as the workers will do; no row is decoded unless --show, a filter or
    on_bad_record: skip asks for it. Run it where the data can be reached.

    In rows that are shown, tokens that are trained on stand in [[double brackets]], <12 pads> stands for pads.
    """
    if output not in (Format.TABLE, Format.JSON):
        raise InputError(f"-o {output.value} is not for plan; use table or json")
    from tpulaunch.cli.worker_process import ask_about_data

    source = read_source(chosen_one(file, filename))
    told = ask_about_data("plan", source.where, "--show", str(show), document=source.text)
    for described in told["sources"]:
        for sentence in (*described["dropped"], *described["notes"]):
            remark(source.where, sentence)
    if output is Format.JSON:
        emit_json(told)
        return
    header = ("SOURCE", "FILES", "FORMAT", "UNITS", "ROWS", "COLUMN", "DECODED", "SHARE", "EPOCHS")
    emit_table(header, _source_rows(told))
    emit("")
    for name, words in _lines(source.job, told["plan"]):
        emit(f"{name:<16}{words}")
    for row in told.get("rows", ()):
        state = f"bad record: {row['bad']}" if row["bad"] else f"{row['trained']:,} tokens are trained on"
        emit(f"\n--- a row of {row['source']}: {state}")
        emit(row["text"])


def _source_rows(told: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    weights = sum(source["weight"] for source in told["sources"])
    # Under stream packing nobody knows: documents are packed as they come, and show their epoch as the run goes.
    epochs = [f"{each:.2f}" for each in told["plan"]["source_epochs"]] or ["-"] * len(told["sources"])
    for source, passed in zip(told["sources"], epochs, strict=True):
        yield (
            source["name"],
            source["files"],
            ",".join(source["formats"]),
            source["units"],
            f"{source['rows']:,}",
            source["column"],
            size(source["decoded_bytes"]),
            f"{source['weight'] / weights:.1%}",
            passed,
        )


def _lines(job: TPUJob, numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    hosts, machine = numbers["num_hosts"], job.spec.slice.shape.machine
    batch, length = numbers["global_batch_size"], numbers["max_length"]
    yield (
        "batch",
        f"[{batch}, {length}]: {numbers['tokens_per_step']:,} tokens a step, {numbers['rows_per_host']} rows a host",
    )
    left = "left out" if numbers["remainder"] == "drop" else "without loss fill the last batch"
    cut = ", as train.steps says" if job.spec.train.steps == numbers["num_steps"] else ""
    if numbers["packing"] == "stream":
        yield "steps", f"{numbers['num_steps']:,} in all{cut}; documents are packed as they come, epoch after epoch"
    else:
        guess = "; guessed from bytes until documents are measured at start" if numbers["is_estimate"] else ""
        yield "steps", f"{numbers['steps_per_epoch']:,} an epoch, {numbers['num_steps']:,} in all{cut}{guess}"
        yield "remainder", f"{numbers['remainder_rows']:,} rows of an epoch {left}"
    windows = ", ".join(map(str, numbers["window_rows"]))
    yield "lanes", f"{numbers['num_lanes']}, {numbers['num_lanes'] // hosts} a host; windows of {windows} rows"
    rows, rule = numbers["buffer_rows"], numbers["buffer_rule"]
    yield "shuffle buffer", f"{rows:,} rows over all hosts ({rule}), seed {numbers['seed']}"
    here, limit = size(numbers["buffer_bytes"] // hosts), size(numbers["buffer_limit_bytes"])
    yield "its RAM", f"{here} a host, of {limit} that a {machine.name} ({machine.ram_gib} GiB) can spare"


def size(num_bytes: int) -> str:
    """Return bytes in the largest unit that leaves at least 1, with three digits."""
    amount = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} TiB"
