"""Rights, contexts and namespaces against a real API server (case C11), and the doctor that looks at them."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import User, run

pytestmark = pytest.mark.cluster


def test_the_doctor_finds_the_test_cluster_fit_and_lists_its_slices(user: User, queue: str) -> None:
    printed = user.types("doctor", "-o", "json")
    findings = {(f["subject"], f["verdict"]) for f in printed.data}
    assert printed.code == 0, printed.out
    for subject in ("server", "namespace", "JobSet", "Kueue", "rights", "queue", "slice"):
        assert (subject, "ok") in findings
    words = " ".join(f["words"] for f in printed.data)
    assert "v6e 2x4: 2 whole" in words
    assert queue in words


def test_without_rights_every_command_says_who_may_not_do_what(user: User) -> None:
    user.cluster.require("node-control")  # identities can be made on the suite's own cluster only
    config = str(user.cluster.kubeconfig_as("ana"))  # type: ignore[attr-defined]
    where = ("--kubeconfig", config, "-n", user.namespace)
    for command in (("submit", user.write()), ("list",), ("logs", "tiny"), ("delete", "tiny")):
        printed = run(*command, *where)
        assert printed.code == 1, printed
        assert 'User "ana" cannot' in printed.err
        assert "Traceback" not in printed.err
    assert run("diff", user.write(), *where).code == 2
    doctor = run("doctor", *where)
    assert doctor.code == 1
    assert "you may not create jobsets" in doctor.out


def test_acting_as_another_user_is_asked_of_the_server(user: User) -> None:
    printed = user.types("list", "--as", "ben", "--as-group", "interns")
    assert printed.code == 1
    assert 'User "ben" cannot list' in printed.err


def test_the_same_name_in_two_namespaces_is_two_jobs_and_another_namespace_is_never_searched(user: User) -> None:
    user.submits("sleep 1000")
    elsewhere = run("status", "tiny", "-n", "default", "--kubeconfig", str(user.cluster.kubeconfig))
    assert elsewhere.code == 3
    assert "does not exist in namespace default" in elsewhere.err
    everywhere = run("list", "-A", "-o", "json", "--kubeconfig", str(user.cluster.kubeconfig))
    assert user.namespace in {job["namespace"] for job in json.loads(everywhere.out)}


def test_a_spec_with_a_secret_in_it_is_refused_before_anything_is_asked(user: User) -> None:
    printed = user.types("submit", user.write(train={"env": {"HF_TOKEN": "hf_" + "a" * 30}}))
    assert printed.code == 2
    assert "secrets: {HF_TOKEN: {secret: SECRET, key: KEY}}" in printed.err
    assert "hf_aaa" not in printed.err + printed.out
    assert user.cluster.find("JobSet", "tiny", user.namespace) is None
