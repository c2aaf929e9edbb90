"""A worker on a corpus of its own, for tests that change it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.session.builders import write_corpus

if TYPE_CHECKING:
    from tests.session.test_training_loop import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    from tests.session.test_training_loop import Bench  # needs JAX, which not every environment of these tests has

    write_corpus(tmp_path)
    bench = Bench(tmp_path, tmp_path)
    yield bench
    bench.close()
