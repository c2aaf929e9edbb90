"""What every test starts from: no variable of a platform, no cluster of yours, cluster tests last."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# A busy machine is no failure, so no example is judged by its time.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

pytest_plugins = ["tests.cluster.fixtures"]

_FOREIGN_PREFIXES = ("TPU_", "MEGASCALE_", "TPULAUNCH_", "JOBSET_", "PJRT_", "XLA_")
_FOREIGN = frozenset({"JOB_COMPLETION_INDEX", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "KUBECONFIG"})
_ORDER = {"architecture": 0, "cluster": 2, "e2e": 3}


@pytest.fixture(autouse=True)
def _no_foreign_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("cluster"):
        return
    for name in list(os.environ):
        if name in _FOREIGN or name.startswith(_FOREIGN_PREFIXES):
            monkeypatch.delenv(name)


def pytest_configure() -> None:
    """Let Ctrl-C be tested where the suite runs in the background: a shell has such programs ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what judges the tree first and what needs a cluster last."""
    items.sort(key=lambda item: _ORDER.get(item.path.parent.name, 1))
