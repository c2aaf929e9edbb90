"""What tests of the training functions need beside the suite's own fixtures."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _torch_xla_on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the device for tests in this process: torch_xla does so itself only when it is first imported."""
    if request.node.get_closest_marker("torch_xla"):
        monkeypatch.setenv("PJRT_DEVICE", "CPU")
