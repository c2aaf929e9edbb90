"""http:// and s3:// against servers that are busy, cut answers off and are slow; and buckets without the object."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.builders import data_job, global_batches
from tests.storage.servers import Faults, proxy, serve
from tpuworker.data.indexing import build_index
from tpuworker.errors import DataError, InputError
from tpuworker.storage import RetryPolicy, Storage, UnavailableError

#: aiohttp leaves the socket of a connection that the server broke off to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
QUICK = RetryPolicy(attempts=5, first_seconds=0.01, most_seconds=0.02)


def parquet(first: int, stop: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [f"r{n:06d}" for n in range(first, stop)]}), sink, row_group_size=4)
    return sink.getvalue()


def jsonl(first: int, stop: int) -> bytes:
    return b"".join(b'{"text": "r%06d"}\n' % n for n in range(first, stop))


FILES = {"/d/a.parquet": parquet(0, 10), "/d/b.jsonl": jsonl(10, 16)}
FAULTS = [429, 503, "cut", "slow", "reset"]


def rows_of(patterns: list[str], storage: Storage) -> list[int | None]:
    job = data_job([{"files": patterns}], batch=4, shuffle={"order": "sequential"})
    index = build_index(job, storage=storage)
    return [n for batch in global_batches(job, index, storage=storage) for n in batch]


@pytest.mark.parametrize("what", FAULTS)
def test_a_web_server_that_fails_now_and_then_is_asked_again(what: int | str) -> None:
    faults = Faults([(r"a\.parquet", what)] * 2 + [(r"b\.jsonl", what)] * 2)
    with serve(FILES, faults) as address:
        assert rows_of([f"{address}/d/a.parquet", f"{address}/d/b.jsonl"], Storage(QUICK)) == list(range(16))
    assert not faults.plan


def test_what_a_web_server_does_not_have_is_refused_at_once() -> None:
    faults = Faults()
    with serve(FILES, faults) as address, pytest.raises(InputError, match=r"/d/none\.parquet: found no file"):
        Storage(QUICK).resolve([f"{address}/d/none.parquet"])
    assert sum(count for path, count in faults.served.items() if "none" in path) <= 3


def test_a_web_server_that_stays_busy_is_given_up_and_not_called_missing() -> None:
    busy = Faults([(r"a\.parquet", 429)] * 99)
    with serve(FILES, busy) as address, pytest.raises(UnavailableError, match="gave up after 5 requests"):
        Storage(QUICK).resolve([f"{address}/d/a.parquet"])


def test_a_forbidden_file_is_refused_without_its_signature() -> None:
    with serve(FILES, Faults([(r"a\.parquet", 403)] * 99)) as address, pytest.raises(DataError) as refused:
        Storage(QUICK).resolve([f"{address}/d/a.parquet?token=abcdef123"])
    assert "no permission" in str(refused.value)
    assert "abcdef123" not in str(refused.value)


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, Faults]]:
    """An S3 server with a bucket, behind a proxy that fails to order."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    faults = Faults()
    with proxy(f"http://{host}:{port}", faults) as address:
        import boto3

        client = boto3.client(
            "s3", endpoint_url=address, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
        )
        client.create_bucket(Bucket="corpus")
        for name, content in FILES.items():
            client.put_object(Bucket="corpus", Key=name.lstrip("/"), Body=content)
        yield address, faults
    server.stop()


def s3(address: str) -> Storage:
    options = {"endpoint_url": address, "key": "key", "secret": "secret", "client_kwargs": {"region_name": "us-east-1"}}
    return Storage(QUICK, options={"s3": options})


@pytest.mark.parametrize("what", FAULTS)
def test_a_bucket_that_fails_now_and_then_is_asked_again(what: int | str, bucket: tuple[str, Faults]) -> None:
    address, faults = bucket
    faults.plan += [(r"/corpus/d/a\.parquet", what)] * 2 + [(r"/corpus/d/b\.jsonl", what)] * 2
    assert rows_of(["s3://corpus/d/*.parquet", "s3://corpus/d/*.jsonl"], s3(address)) == list(range(16))
    assert not faults.plan


def test_what_a_bucket_does_not_hold_is_refused_with_what_it_holds(bucket: tuple[str, Faults]) -> None:
    address, _ = bucket
    with pytest.raises(InputError, match=r"s3://corpus/d/x\*: found no file; .*holds a\.parquet, b\.jsonl"):
        s3(address).resolve(["s3://corpus/d/x*"])
    with pytest.raises(InputError, match=r"s3://corpus/d: found a directory; wanted files; write s3://corpus/d/\*"):
        s3(address).resolve(["s3://corpus/d"])


def test_cursors_of_a_bucket_are_whole_or_absent(bucket: tuple[str, Faults], tmp_path: Path) -> None:
    from tests.data.builders import BytePipeline, Host, write_parquet
    from tpuworker.data.loader import Loader
    from tpuworker.session.checkpoint import CursorStore

    address, _ = bucket
    job = data_job(write_parquet(tmp_path, [64]), batch=8)
    store = CursorStore("s3://corpus/run", keep=2, storage=s3(address))
    with Loader(job, Host(0, 1), build_index(job), BytePipeline()) as loader:
        for batch in loader:
            store.save(batch.cursor)
            last = batch.cursor
    assert store.load() == (last, ())
