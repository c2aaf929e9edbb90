"""TokenRows: what is known of rows whose ids were made before."""

from __future__ import annotations

import pyarrow as pa

from tpuworker.api.tokenised import TokenisedPipeline


def test_rows_without_a_single_label_are_told_apart_from_rows_that_are_not_there() -> None:
    rows = [
        {"input_ids": [5, 6], "labels": [5, 6]},
        {"input_ids": [5, 6], "labels": [-100, -100]},
        None,
        {"input_ids": [7, 8], "labels": [-100, 8]},
        {"input_ids": [9, 9], "labels": [-100, -100]},
    ]
    made = TokenisedPipeline(("input_ids", "labels"), max_length=2, num_rows=3).encode(pa.array(rows))
    assert made.unlearnable == (1, 4)
    assert made.arrays["attention_mask"].tolist() == [[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]]
