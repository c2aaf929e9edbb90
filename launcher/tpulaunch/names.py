"""The one maker of object names, which judges each at its longest before anything is sent.

JobSet derives every name from the job's: child Jobs ``NAME-slice-S``, pods ``NAME-slice-S-H-xxxxx``, host names
``NAME-slice-S-H.NAME``. Its webhook checks the longest pod name against 63 characters of DNS-1035; the Job controller
would otherwise cut the pod name silently, and hosts would not resolve each other.
"""

from __future__ import annotations

import re
import unicodedata

from tpuworker.errors import Fault
from tpuworker.spec.environment import host_name
from tpuworker.spec.wire import REPLICATED_JOB

#: Longest DNS label (RFC 1035), which pod host names, Jobs and Services must be.
DNS_LABEL_LENGTH = 63
#: What the Job controller appends to a pod's name: a hyphen and five random characters.
POD_SUFFIX_LENGTH = 6
#: Hexadecimal digits of the digest in a default name: one clash in 65,000 jobs of the same login.
_DIGEST_LENGTH = 8
_LONGEST_LOGIN = 20
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def child_job_name(name: str, slice_index: int) -> str:
    """Return the name of the Job that JobSet makes for a slice."""
    return f"{name}-{REPLICATED_JOB}-{slice_index}"


def coordinator_host(name: str) -> str:
    """Return the host name of host 0 of slice 0, where all hosts meet."""
    return host_name(name, 0, 0)


def longest_name_length(num_slices: int, hosts_per_slice: int) -> int:
    """Return the most characters a job's name may have so that its longest pod name is a DNS label."""
    derived = host_name("", num_slices - 1, hosts_per_slice - 1).rstrip(".")
    return DNS_LABEL_LENGTH - POD_SUFFIX_LENGTH - len(derived)


def judge_name(name: str, num_slices: int, hosts_per_slice: int) -> Fault | None:
    """Return what is wrong with a job's name given the names that JobSet makes of it, or None."""
    longest = longest_name_length(num_slices, hosts_per_slice)
    path = "metadata.name"
    if not _DNS_LABEL.fullmatch(name):
        return Fault(path, repr(name), "a DNS label: a-z, 0-9 and '-', first a letter", f"write {dns_label(name)!r}")
    if len(name) > longest:
        pod = host_name(name, num_slices - 1, hosts_per_slice - 1).partition(".")[0]
        wanted = f"at most {longest}, since the longest pod name is {pod}-xxxxx and may have {DNS_LABEL_LENGTH}"
        return Fault(path, f"a name of {len(name)} characters", wanted, f"write {name[:longest].rstrip('-')!r}")
    return None


def dns_label(text: str, otherwise: str = "job") -> str:
    """Return a DNS label that resembles a text: accents dropped, capitals lowered, the rest hyphens."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    label = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if label and label[0].isdecimal():
        label = f"u-{label}"
    return label[:DNS_LABEL_LENGTH].rstrip("-") or otherwise


def default_name(login: str | None, digest: str, num_slices: int, hosts_per_slice: int) -> str:
    """Return the name of a job whose spec gives none: the login made valid, and a hash of the spec.

    The same person submitting the same spec gets the same name, so nothing runs twice by accident.

    Args:
        login: Login name as the system has it, or None where it has none (a container).
        digest: Hexadecimal digest of the spec; its first eight digits are used.
        num_slices: Slices of the job.
        hosts_per_slice: Hosts of one slice.
    """
    suffix = f"-{digest[:_DIGEST_LENGTH]}"
    room = min(longest_name_length(num_slices, hosts_per_slice) - len(suffix), _LONGEST_LOGIN)
    return dns_label(login or "")[:room].rstrip("-") + suffix
