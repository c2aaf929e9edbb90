"""What scripts take from status and list on a real cluster: single values, chosen jobs, and requests shown."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import TWO_HOSTS, User, eventually

pytestmark = pytest.mark.cluster


def test_scripts_pick_single_values_and_choose_jobs_by_label_or_field(user: User) -> None:
    user.submits("sleep 1000", slice=TWO_HOSTS, metadata={"labels": {"team": "lm"}})
    user.submits("sleep 1000", name="other")
    phase = "jsonpath={.phase}"
    assert eventually(lambda: user.types("status", "tiny", "-o", phase).out, lambda out: out == "Running")
    nodes = 'jsonpath={range .hosts[*]}{.host}{"="}{.node}{"\\n"}{end}'
    assert user.types("status", "tiny", "-o", nodes).out.splitlines()[0].startswith("0/0=v6e-")
    names = "jsonpath={[*].name}"
    assert user.types("list", "-o", names).out == "other tiny"
    assert user.types("list", "-l", "team=lm", "-o", names).out == "tiny"
    assert user.types("list", "--field-selector", "metadata.name=other", "-o", names).out == "other"
    assert user.types("list", "--field-selector", "spec.color=red").code == 1


def test_requests_are_shown_on_stderr_for_the_asking(user: User) -> None:
    quiet, loud = user.types("list", "-o", "name"), user.types("list", "-o", "name", "-v", "6")
    assert (quiet.out, "GET https://" in quiet.err) == (loud.out, False)
    assert "/apis/jobset.x-k8s.io/v1alpha2/namespaces/" in loud.err
    assert " 200 in " in loud.err
