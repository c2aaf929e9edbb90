"""The CPU limit of a container, in both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuworker.tokens.processors import cpu_limit


@pytest.fixture(autouse=True)
def _sixteen_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 16),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"proc/self/cgroup": "0::/pod/me\n", "sys/fs/cgroup/pod/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/pod/me\n4:memory:/other\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/me/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/me/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            16,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 16),
    ],
    ids=["no limit", "version 2", "max", "of a parent", "less than one", "version 1", "unlimited", "above affinity"],
)
def test_the_least_of_affinity_and_quota_counts(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    assert cpu_limit(write(tmp_path, files)) == limit
