"""What the scale and launcher parts stand on: made-up indexes, the listing server, specs by number."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from bench.launcher import spec_text
from bench.scale.jobs import index_of, job_over
from bench.scale.listing import serve_objects
from tpulaunch.check import check
from tpulaunch.plan import make_plan
from tpulaunch.render import render
from tpuworker.data.plan import make_data_plan
from tpuworker.spec import load_job


@pytest.mark.parametrize(("rows", "units"), [(10_001, 10), (7, 7), (10**12, 1_000)])
def test_a_made_up_index_has_its_rows_in_units_of_nearly_equal_size(rows: int, units: int) -> None:
    source = index_of(rows, units).sources[0]

    assert source.num_rows == rows
    assert source.num_units == units
    assert int(source.unit_rows.max() - source.unit_rows.min()) <= 1


def test_a_made_up_job_can_be_planned_for_thousands_of_hosts() -> None:
    plan = make_data_plan(job_over("a-*.parquet", global_batch_size=8 * 4_096, num_hosts=4_096), index_of(10**9, 10**4))

    assert plan.rows_per_host == 8
    assert plan.num_lanes % 4_096 == 0


def test_the_listing_server_hands_out_pages_of_a_thousand() -> None:
    with serve_objects(2_500) as endpoint:
        names: list[str] = []
        pages, token = 0, "0"
        while token:
            with urlopen(f"{endpoint}/storage/v1/b/bench/o?prefix=part-&pageToken={token}") as answer:
                content = json.load(answer)
            pages += 1
            names += [item["name"] for item in content["items"]]
            token = content.get("nextPageToken", "")

    assert pages == 3
    assert names == [f"part-{number:06d}.parquet" for number in range(2_500)]


def test_specs_by_number_are_valid_and_differ_by_name() -> None:
    plans = [make_plan(load_job(text), text) for text in (spec_text(1), spec_text(2))]

    assert [check(render(plan), plan) for plan in plans] == [[], []]
    assert "bench-0001" in render(plans[0])
    assert "bench-0002" in render(plans[1])
