from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpulaunch.names import coordinator_host, default_name, dns_label, judge_name, longest_name_length

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DIGEST = "0123abcd" * 8


@pytest.mark.parametrize(
    ("num_slices", "hosts_per_slice", "longest"),
    [
        (1, 1, 63 - 6 - len("-slice-0-0")),
        (16, 64, 63 - 6 - len("-slice-15-63")),
        (2, 2304, 63 - 6 - len("-slice-1-2303")),
    ],
)
def test_the_longest_name_leaves_room_for_the_longest_pod(num_slices: int, hosts_per_slice: int, longest: int) -> None:
    assert longest_name_length(num_slices, hosts_per_slice) == longest
    assert judge_name("a" * longest, num_slices, hosts_per_slice) is None
    assert judge_name("a" * (longest + 1), num_slices, hosts_per_slice) is not None


def test_a_name_too_long_for_its_slices_is_refused_with_the_pod_it_would_break() -> None:
    fault = judge_name("n" * 46, num_slices=16, hosts_per_slice=64)
    assert fault is not None
    assert fault.path == "metadata.name"
    assert fault.found == "a name of 46 characters"
    assert f"{'n' * 46}-slice-15-63-xxxxx" in fault.wanted
    assert fault.hint == f"write {'n' * 45!r}"


@pytest.mark.parametrize(
    ("login", "name"),
    [
        ("Ana.Lópezz_92", "ana-lopezz-92-0123abcd"),
        ("9bob", "u-9bob-0123abcd"),
        ("x" * 40, "x" * 20 + "-0123abcd"),
        ("---", "job-0123abcd"),
        ("李", "job-0123abcd"),
        (None, "job-0123abcd"),
    ],
)
def test_a_job_without_a_name_is_named_after_the_login_and_the_spec(login: str | None, name: str) -> None:
    assert default_name(login, DIGEST, num_slices=2, hosts_per_slice=4) == name


@given(st.text(max_size=80), st.integers(1, 10_000), st.integers(1, 2304))
def test_a_default_name_is_valid_whatever_the_login(login: str, num_slices: int, hosts_per_slice: int) -> None:
    name = default_name(login, DIGEST, num_slices, hosts_per_slice)
    assert judge_name(name, num_slices, hosts_per_slice) is None


@given(st.text(max_size=100))
def test_every_text_has_a_dns_label(text: str) -> None:
    assert DNS_1035.fullmatch(dns_label(text))
    assert len(dns_label(text)) <= 63


def test_all_hosts_meet_at_host_0_of_slice_0() -> None:
    assert coordinator_host("tiny-lm") == "tiny-lm-slice-0-0.tiny-lm"
