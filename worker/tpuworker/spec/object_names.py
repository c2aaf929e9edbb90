"""What Kubernetes takes as a name, label or key, as types of the spec, so that no field fails at admission."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from tpuworker.spec.wire import is_reserved_key
from tpuworker.strict import refusal

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_SUBDOMAIN_PART}(\.{_SUBDOMAIN_PART})*")
_DATA_KEY = re.compile(r"[A-Za-z0-9._-]+")


def _dns_label(name: str) -> str:
    if len(name) > 63 or not _DNS_LABEL.fullmatch(name):
        kept = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:63].rstrip("-")
        raise refusal(
            found=repr(name),
            wanted="a DNS label: a-z, 0-9 and '-', first a letter, at most 63 characters",
            hint=f"write {kept!r}" if kept else "",
        )
    return name


def _subdomain(name: str) -> str:
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        raise refusal(found=repr(name), wanted="an object's name: a-z, 0-9, '-' and '.', at most 253 characters")
    return name


def _label_value(value: str) -> str:
    if not value or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        wanted = "a name that is a label value: 1 to 63 of A-Z a-z 0-9 . _ -, first and last alphanumeric"
        raise refusal(found=repr(value), wanted=wanted)
    return value


def _data_key(key: str) -> str:
    if len(key) > 253 or not _DATA_KEY.fullmatch(key):
        raise refusal(found=repr(key), wanted="a key of a Secret: A-Z a-z 0-9 . _ -, at most 253 characters")
    return key


#: Name of the job and its namespace.
DnsLabel = Annotated[str, AfterValidator(_dns_label)]
#: Name of another object: Secret, service account, claim, class.
ObjectName = Annotated[str, AfterValidator(_subdomain)]
#: Name of something that GKE or Kueue look up by a label: queue, reservation, policy.
LabelName = Annotated[str, AfterValidator(_label_value)]
#: Key inside a Secret.
DataKey = Annotated[str, AfterValidator(_data_key)]


def judge_labels(labels: Mapping[str, str]) -> Iterator[PydanticCustomError]:
    """Yield every key and value of labels that Kubernetes does not take, or that belongs to somebody else."""
    yield from judge_keys(labels)
    for key, value in labels.items():
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            yield refusal(
                field=key,
                found=repr(value),
                wanted="at most 63 of A-Z a-z 0-9 . _ -, first and last alphanumeric",
                hint="put free text into annotations",
            )


def judge_keys(keys: Iterable[str]) -> Iterator[PydanticCustomError]:
    """Yield every key of labels or annotations that Kubernetes does not take, or that belongs to somebody else."""
    for key in keys:
        yield from _judge_key(key)


def _judge_key(key: str) -> Iterator[PydanticCustomError]:
    prefix, _, name = key.rpartition("/")
    if len(name) > 63 or len(prefix) > 253 or not _LABEL_KEY.fullmatch(key):
        yield refusal(field=key, found=repr(key), wanted="a label key: [DNS prefix/]name of at most 63 characters")
    if is_reserved_key(key):
        yield refusal(
            field=key,
            found=repr(key),
            wanted="a key outside the prefixes that JobSet, Kueue and tpulaunch own",
            hint="queue and priority are fields of spec.schedule",
        )
