"""gs:// against a server that speaks Google's protocol, built from its Go module, with faults in front of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.servers import Faults, proxy
from tests.storage.test_servers import FAULTS, FILES, QUICK, rows_of
from tpuworker.errors import InputError
from tpuworker.storage import Storage

#: aiohttp leaves the socket of a connection that the server broke off to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
MODULE = Path(__file__).parent / "gcs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpulaunch" / "gcs"


def built() -> Path:
    """Return the server's program, built once for the versions that go.sum pins."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain to build the server with")
    pins = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()
    program = CACHE / f"fake-gcs-server-{hashlib.sha256(pins).hexdigest()[:12]}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}")
        command = [go, "build", "-mod=readonly", "-o", str(part), "github.com/fsouza/fake-gcs-server"]
        done = subprocess.run(command, cwd=MODULE, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"the server cannot be built: {done.stderr.strip().splitlines()[-1]}")
        part.rename(program)
    return program


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Faults]]:
    """A bucket with the files, behind a proxy that fails to order."""
    root = tmp_path_factory.mktemp("gcs")
    for name, content in FILES.items():
        path = root / "corpus" / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-data", str(root)]
    server = subprocess.Popen([built(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        faults = Faults()
        with proxy(f"http://127.0.0.1:{port}", faults) as address:
            yield address, faults
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until, server_is_starting = time.monotonic() + 60, threading.Event()
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        server_is_starting.wait(0.05)
    pytest.fail("the server did not open its port")


def gs(address: str) -> Storage:
    return Storage(QUICK, options={"gs": {"endpoint_url": address, "token": "anon"}})


@pytest.mark.parametrize("what", FAULTS)
def test_a_bucket_that_fails_now_and_then_is_asked_again(what: int | str, bucket: tuple[str, Faults]) -> None:
    address, faults = bucket
    faults.plan += [(r"a\.parquet", what)] * 2 + [(r"b\.jsonl", what)] * 2
    assert rows_of(["gs://corpus/d/a.parquet", "gs://corpus/d/*.jsonl"], gs(address)) == list(range(16))
    assert not faults.plan


def test_what_a_bucket_does_not_hold_is_refused_with_what_it_holds(bucket: tuple[str, Faults]) -> None:
    address, _ = bucket
    with pytest.raises(InputError, match=r"gs://corpus/d/x\*: found no file; .*holds a\.parquet, b\.jsonl"):
        gs(address).resolve(["gs://corpus/d/x*"])
