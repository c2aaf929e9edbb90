"""Bytes from anywhere: listings, ranged reads, small atomic objects; retried by rule, credentials never shown."""

from tpuworker.storage.files import FileInfo, RangeFile, Storage, is_remote
from tpuworker.storage.redact import in_one_line, redact
from tpuworker.storage.retry import NotFoundError, Remedy, RetryPolicy, UnavailableError, remedy, with_retries

__all__ = [
    "FileInfo",
    "NotFoundError",
    "RangeFile",
    "Remedy",
    "RetryPolicy",
    "Storage",
    "UnavailableError",
    "in_one_line",
    "is_remote",
    "redact",
    "remedy",
    "with_retries",
]
