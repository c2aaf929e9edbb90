"""Tells other programs about data, as JSON on stdout: what a job's data will be, or which columns files have.

    python -m tpuworker.describe plan NAME < job.yaml
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
    from tpuworker.data.index import SourceIndex


def describe_plan(job: TPUJob) -> dict[str, Any]:
    """Return the numbers of a job's data: its sources as they are, and the plan that follows.

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
    return {"sources": [_source(source) for source in index.sources], "plan": numbers}


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
    about.add_parser("plan").add_argument("name", help="what messages call the document on stdin")
    about.add_parser("columns").add_argument("patterns", nargs="+")
    options = parser.parse_args(arguments)
    try:
        if options.about == "plan":
            told = describe_plan(load_job(sys.stdin.buffer.read().decode("utf-8"), options.name))
        else:
            told = describe_columns(options.patterns)
    except WorkerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(told) + "\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
