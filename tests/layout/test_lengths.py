"""Lengths of the documents that stand in a batch, told by its arrays alone."""

from __future__ import annotations

import numpy as np

from tpuworker.layout.rows import document_lengths


def test_padded_rows_are_as_long_as_their_mask() -> None:
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], np.int32)
    assert document_lengths({"attention_mask": mask}).tolist() == [3, 1, 4]


def test_every_segment_of_a_packed_row_is_a_document_and_pads_are_none() -> None:
    segments = np.array([[1, 1, 2, 0], [1, 2, 3, 3], [0, 0, 0, 0]], np.int32)
    assert document_lengths({"segment_ids": segments}).tolist() == [2, 1, 1, 1, 2]
