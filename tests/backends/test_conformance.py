"""Every backend of the list keeps every promise of the interface, alone and among hosts, on several devices a host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

import tpuworker.backends
from tpuworker.backends import NAMES
from tpuworker.spec.pod import Backend

ROOT = Path(__file__).parents[2]
DEVICES = 2
WORLDS = {"alone": 1, "two hosts": 2}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_hosts(name: str, num_hosts: int, sharding: str = "devices") -> list[dict[str, Any]]:
    port = str(free_port())
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XLA_", "TPU_", "PJRT_"))}
    environment |= {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
        "CPU_NUM_DEVICES": str(DEVICES),
    }
    commands = [
        [sys.executable, "-m", "tests.backends.host", name, str(rank), str(num_hosts), port, sharding]
        for rank in range(num_hosts)
    ]
    hosts = [
        subprocess.Popen(c, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    try:
        outputs = [host.communicate(timeout=240) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
    for host, (_, errors) in zip(hosts, outputs, strict=True):
        assert host.returncode == 0, errors[-3000:]
    lines = [next(line for line in out.splitlines() if line.startswith("SEEN ")) for out, _ in outputs]
    return [json.loads(line.removeprefix("SEEN ")) for line in lines]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, world), id=f"{name} {world}", marks=getattr(pytest.mark, name))
        for name in NAMES
        for world in WORLDS
    ],
)
def seen(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    name, world = request.param
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: the extra {name.replace('_', '-')} brings it")
    return run_hosts(name, WORLDS[world])


def test_devices_are_those_of_all_hosts(seen: list[dict[str, Any]]) -> None:
    assert all(host["devices"] == [DEVICES * len(seen), DEVICES] for host in seen)
    assert all(host["platform"] == "cpu" for host in seen)


def test_rows_come_back_from_the_devices_in_order_and_type(seen: list[dict[str, Any]]) -> None:
    assert all(host["round_trip"] and host["dtype"] == "int32" for host in seen)


def test_one_shape_is_compiled_once(seen: list[dict[str, Any]]) -> None:
    assert [host["compiles_of_one_shape"] for host in seen] == [1] * len(seen)


def test_a_new_shape_is_seen_as_a_new_compilation(seen: list[dict[str, Any]]) -> None:
    assert [host["compiles_of_new_shape"] for host in seen] == [1] * len(seen)


def test_exchange_brings_every_hosts_bytes_by_rank(seen: list[dict[str, Any]]) -> None:
    wanted = [f"host {rank}" * (rank + 1) for rank in range(len(seen))]
    assert all(host["gathered"] == wanted for host in seen)
    assert all(host["empty"] == [0] * len(seen) for host in seen)


def test_broadcast_brings_the_first_hosts_bytes(seen: list[dict[str, Any]]) -> None:
    assert all(host["broadcast"] for host in seen)


def test_a_vote_finds_the_largest_value_at_once_and_after_a_step(seen: list[dict[str, Any]]) -> None:
    assert [host["vote"] for host in seen] == [9 + len(seen)] * len(seen)
    assert [host["late_ballot"] for host in seen] == [len(seen) - 1] * len(seen)


def test_exchange_and_votes_are_not_counted_as_the_jobs_compilations(seen: list[dict[str, Any]]) -> None:
    assert [host["compiles_of_exchange"] for host in seen] == [0] * len(seen)


def test_hosts_that_have_diverged_are_told_so(seen: list[dict[str, Any]]) -> None:
    if len(seen) > 1:
        assert "hosts have diverged: this host exchanges 'tag 0', host rank 1 exchanges 'tag 1'" in seen[0]["diverged"]


def test_the_first_words_under_a_name_are_found_by_every_host(seen: list[dict[str, Any]]) -> None:
    if len(seen) > 1:
        assert seen[0]["posted"] in {f"of host {rank}, \u00fc" for rank in range(len(seen))}
        assert all(host["posted"] == seen[0]["posted"] for host in seen)
    assert all(host["not_posted"] is None for host in seen)


@pytest.mark.jax
def test_jax_names_what_was_compiled_and_lets_devices_of_a_host_share_rows() -> None:
    pytest.importorskip("jax")
    (host,) = run_hosts("jax", 1, sharding="hosts")
    assert host["named"] == ["jit(probe)"]
    assert host["round_trip"]


def test_the_list_is_the_directory_and_what_the_spec_allows() -> None:
    folder = Path(tpuworker.backends.__file__).parent
    defining = {path.stem for path in folder.glob("*.py") if "\nBACKEND = " in path.read_text()}
    assert set(NAMES) == defining == set(get_args(Backend))


def test_loading_a_backend_imports_no_library_yet() -> None:
    program = (
        "import sys, tpuworker.backends as b\n"
        "for name in b.NAMES: b.load(name)\n"
        "print('jax' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_unknown_backend_is_no_backend() -> None:
    with pytest.raises(KeyError):
        tpuworker.backends.load("torch_tpu")
