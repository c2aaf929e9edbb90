"""Tells other programs about data, as JSON on stdout: what a job's data will be, or which columns files have.

    python -m tpuworker.describe plan NAME [--show COUNT] < job.yaml
    python -m tpuworker.describe columns PATTERN...

``tpulaunch plan`` and ``tpulaunch init`` start it as a process of its own, since the launcher never loads a data
library. Faults go to stderr, one a line; the exit code is the error's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tpuworker.errors import EXIT_OK, WorkerError
from tpuworker.spec import TPUJob, load_job

if TYPE_CHECKING:
    from tpuworker.data.index import Index, SourceIndex
    from tpuworker.spec.data import DataSpec

#: Documents that rows to be shown are packed from, for each row.
_DOCUMENTS_OF_A_ROW = 64


def describe_plan(job: TPUJob, show: int = 0) -> dict[str, Any]:
    """Return the numbers of a job's data: its sources as they are, and the plan that follows.

    Args:
        job: The job.
        show: Rows of each source to make and return as text, under ``rows``.

    Raises:
        DataError: The data is not there, not what the spec says, or not enough.
        SpecError: Bad conversations are to be left out, and the tokenizer has no chat template to judge them by.
    """
    from tpuworker.data.indexing import build_index
    from tpuworker.data.plan import make_data_plan
    from tpuworker.tasks.judging import judge_for
    from tpuworker.tokens.resolve import load_tokenizer

    data = job.spec.data
    index = build_index(job, judge=judge_for(data, lambda: load_tokenizer(data)))
    plan = make_data_plan(job, index)
    numbers = asdict(plan) | {"tokens_per_step": plan.tokens_per_step, "rows_per_host": plan.rows_per_host}
    told = {"sources": [_source(source) for source in index.sources], "plan": numbers}
    return told if not show else told | {"rows": _rows(data, index, show)}


def _rows(data: DataSpec, index: Index, count: int) -> list[dict[str, Any]]:
    """Return rows of each source as the model will get them, made from records that lie evenly in the source."""
    from tpuworker.data.probing import some_records
    from tpuworker.pipeline import make_pipeline
    from tpuworker.tasks.probe import probe_rows
    from tpuworker.tokens.choose import make_engine
    from tpuworker.tokens.resolve import load_tokenizer
    from tpuworker.tokens.verdict import reference_verdict

    tokenizer = load_tokenizer(data)
    engine = make_engine(reference_verdict(tokenizer), data.tokenizer, tokenizer)
    pipeline = make_pipeline(data, tokenizer, engine, count)
    is_packed = data.layout == "pack"
    found = []
    for source in index.sources:
        most = count * _DOCUMENTS_OF_A_ROW if is_packed else count
        documents = pipeline.encode(some_records(index, source.number, most, num_units=count))
        if is_packed:
            made = next(pipeline.packed(documents, pipeline.plan(documents.lengths).select(0, count)))
        else:
            made = next(pipeline.padded(documents))
        num_rows = len(made.arrays["input_ids"]) if is_packed else documents.num_documents
        why = {} if is_packed else {bad.row: bad.reason for bad in documents.bad}
        found += [
            {"source": source.name, "trained": row.num_trained, "bad": why.get(row.row), "text": row.describe()}
            for row in probe_rows(made.arrays, tokenizer, num_rows)
            if row.runs
        ]
    return found


def describe_columns(patterns: Sequence[str]) -> dict[str, Any]:
    """Return the files that patterns match, and the columns and rows of the first one that has any.

    Raises:
        DataError: A pattern matches nothing, or the file is not what its name says.
    """
    from tpuworker.errors import Fault, InputError
    from tpuworker.formats import ENDINGS, FORMATS, format_named
    from tpuworker.storage import Storage, redact

    storage = Storage()
    files = storage.resolve(patterns)
    for file in files:
        name = format_named(file.name)
        if name is None:
            raise InputError([Fault(redact(file.url), "an ending that says no format", f"one of {' '.join(ENDINGS)}")])
        units = FORMATS[name]().index(storage, file, ())
        if len(units.rows):
            columns = [{"name": field.name, "type": str(field.type)} for field in units.columns]
            return {"files": len(files), "format": name, "rows_of_first": units.num_rows, "columns": columns}
    raise InputError([Fault(", ".join(map(redact, patterns)), "files without a row", "rows")])


def _source(source: SourceIndex) -> dict[str, Any]:
    column = source.schema.field(0)
    return {
        "name": source.name,
        "weight": source.weight,
        "files": len(source.files),
        "stored_bytes": sum(file.size_bytes for file in source.files),
        "formats": sorted(set(source.formats)),
        "units": source.num_units,
        "rows": source.num_rows,
        "decoded_bytes": int(source.unit_bytes.sum()),
        "column": source.column,
        "type": str(column.type),
        "filtered_rows": source.filtered_rows,
        "dropped": [f"{dropped.place}: {dropped.reason}" for dropped in source.dropped],
        "notes": list(source.notes),
        "fingerprint": source.fingerprint,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tpuworker.describe", description="Tell about data as JSON.")
    about = parser.add_subparsers(dest="about", required=True)
    plan = about.add_parser("plan")
    plan.add_argument("name", help="what messages call the document on stdin")
    plan.add_argument("--show", type=int, default=0, help="rows of each source to make and tell as text")
    about.add_parser("columns").add_argument("patterns", nargs="+")
    options = parser.parse_args(arguments)
    try:
        if options.about == "plan":
            told = describe_plan(load_job(sys.stdin.buffer.read().decode("utf-8"), options.name), options.show)
        else:
            told = describe_columns(options.patterns)
    except WorkerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(told) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
