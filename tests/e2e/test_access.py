"""Rights, contexts and namespaces against a real API server (case C11), and the doctor that looks at them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.e2e.conftest import User, run

pytestmark = pytest.mark.cluster
SAMPLE = Path(__file__).parents[2] / "manifests/samples/rbac.yaml"


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


@pytest.fixture
def ana(user: User) -> Iterator[str]:
    """The kubeconfig of somebody who has the rights of the sample manifest, in the test's namespace, and no others."""
    user.cluster.require("node-control")
    documents = YAML(typ="safe").load_all(SAMPLE.read_text().replace("research", user.namespace))
    made = [document for document in documents if document]
    for document in made:
        if document["metadata"].get("namespace") is None:  # cluster-wide names must not meet those of another test
            document["metadata"]["name"] += f"-{user.namespace}"
        if document.get("roleRef", {}).get("kind") == "ClusterRole":
            document["roleRef"]["name"] += f"-{user.namespace}"
        user.cluster.apply(document, document["metadata"].get("namespace"))
    yield str(user.cluster.kubeconfig_as("ana", f"{user.namespace}@example.com"))  # type: ignore[attr-defined]
    for document in made:
        user.cluster.delete(document["kind"], document["metadata"]["name"], document["metadata"].get("namespace"))


def test_the_rights_of_the_sample_manifest_are_enough_for_every_command(user: User, ana: str, queue: str) -> None:
    where = ("--kubeconfig", ana, "-n", user.namespace)
    path = user.write("echo done", schedule={"queue": queue})
    submitted = run("submit", path, "--follow", *where)
    assert (submitted.code, "0/0 | done\n" in submitted.out) == (0, True), submitted
    for command in (
        ("submit", path),
        ("diff", path),
        ("status", "tiny"),
        ("list",),
        ("logs", "tiny"),
        ("delete", "tiny"),
    ):
        printed = run(*command, *where)
        assert printed.code == 0, printed
    doctor = run("doctor", *where)
    assert "you may not" not in doctor.out


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


def test_a_reference_to_a_secret_reaches_the_worker_and_its_value_no_object_and_no_command(user: User) -> None:
    user.cluster.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "tops3cret"}},
        user.namespace,
    )
    secrets = {"HF_TOKEN": {"secret": "hub", "key": "token"}}
    path = user.write('test "${#HF_TOKEN}" = 9 && echo "it has the token"', train={"secrets": secrets})
    printed = [
        user.types("submit", path, "--wait", "--timeout=600s", "-v", "9"),
        user.types("diff", path, "-v", "9"),
        user.types("status", "tiny", "-o", "json", "-v", "9"),
        user.types("logs", "tiny", "-v", "9"),
    ]
    assert [each.code for each in printed] == [0] * 4, printed
    assert "it has the token" in printed[-1].out
    live = user.cluster.get("JobSet", "tiny", user.namespace)
    assert not [text for text in (str(live), *(each.out + each.err for each in printed)) if "tops3cret" in text]
    # What client-side apply leaves behind would repeat the whole object.
    assert "kubectl.kubernetes.io/last-applied-configuration" not in live["metadata"]["annotations"]
