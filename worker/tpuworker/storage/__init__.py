"""Bytes from anywhere: listings, ranged reads, small atomic objects; retried by rule, credentials never shown."""

from tpuworker.storage.compressed import codec_of, plain_name
from tpuworker.storage.files import FileInfo, RangeFile, Storage, is_remote
from tpuworker.storage.redact import in_one_line, redact
from tpuworker.storage.retry import NotFoundError, Remedy, RetryPolicy, UnavailableError, remedy, with_retries
from tpuworker.storage.scratch import Scratch
from tpuworker.storage.sniff import what_bytes_are

__all__ = [
    "FileInfo",
    "NotFoundError",
    "RangeFile",
    "Remedy",
    "RetryPolicy",
    "Scratch",
    "Storage",
    "UnavailableError",
    "codec_of",
    "in_one_line",
    "is_remote",
    "plain_name",
    "redact",
    "remedy",
    "what_bytes_are",
    "with_retries",
]
