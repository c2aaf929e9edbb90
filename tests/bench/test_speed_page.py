"""The page on speed shows what the kept runs found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.results import Line, Results, read_results
from bench.summary import Spread, Summary

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text()
#: Rows of the page's first table, without emphasis, and whom of the bench they show.
SHOWN = {
    "raw fastokens, nothing around it": "raw fastokens",
    "ours, fast engine": "ours, fast engine",
    "ours, fast engine, on devices with JAX": "ours, fast engine, JAX",
    "ours, fast engine, on devices with PyTorch/XLA": "ours, fast engine, torch",
    "ours, reference engine": "ours, reference engine",
    "datasets reader, two tokenising threads": "datasets reader, 2 tokenising threads",
    "Grain, parquet": "Grain, parquet",
    "LitData, text, 2 workers": "LitData, text, 2 workers",
    "Grain, ArrayRecord, 2 workers": "Grain, ArrayRecord, 2 workers",
    "datasets, numpy": "datasets, numpy",
    "MosaicML, text, 2 workers": "MosaicML, text, 2 workers",
    "ids made before: LitData, tokens": "LitData, tokens",
    "ids made before: ours, token cache": "ours, token cache",
    "ids made before: MosaicML, tokens": "MosaicML, tokens",
}


def table_rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without emphasis and its two head lines."""
    part = PAGE.partition(f"## {heading}")[2]
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table is not None
    plain = re.sub(r"[*`]", "", table.group())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in plain.splitlines()[2:]]


def over_raw(results: Results, contender: str, layout: str) -> Spread | None:
    lines: list[Line] = [line for line in results.lines if (line.corpus, line.layout) == ("real text", layout)]
    found = [line for line in lines if line.contender == contender]
    return Summary(lines).over_raw(found[0]) if found else None


ROWS = table_rows("From text to batches")


def test_the_table_has_every_contender_that_it_names() -> None:
    assert [row[0] for row in ROWS] == list(SHOWN)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_of_the_page_is_what_the_kept_run_found(row: list[str]) -> None:
    results = read_results(ROOT / "bench" / "results" / "loaders.json")
    name, *cells = row
    for layout, cell in zip(("pad", "pack"), cells, strict=True):
        spread = over_raw(results, SHOWN[name], layout)
        shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
        assert len(shown) == (0 if spread is None else 3)
        if spread is not None:
            # Half of the last digit shown, and a hair for the rounding of a binary fraction.
            digits = len(re.findall(r"[\d.]+", cell)[0].partition(".")[2])
            assert shown == pytest.approx([spread.median, spread.least, spread.most], abs=0.501 * 10**-digits)
