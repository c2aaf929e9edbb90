"""Submitting: created, configured, unchanged, refused, replaced; and nothing of others touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.conftest import ONE_HOST, TWO_HOSTS, User, eventually

pytestmark = pytest.mark.cluster
Forbid = Callable[[], None]

NAME = "jobset.jobset.x-k8s.io/tiny"
FOREVER = "sleep 1000"


def live(user: User, name: str = "tiny") -> Any:
    return user.cluster.get("JobSet", name, user.namespace)


def test_the_same_file_is_created_once_and_then_unchanged(user: User) -> None:
    assert user.submits(FOREVER).out == f"{NAME} created\n"
    first = live(user)
    assert user.submits(FOREVER).out == f"{NAME} unchanged\n"
    assert live(user)["metadata"]["resourceVersion"] >= first["metadata"]["resourceVersion"]
    assert live(user)["metadata"]["uid"] == first["metadata"]["uid"]
    assert user.types("diff", user.write(FOREVER)).code == 0


def test_context_server_and_namespace_are_told_on_stderr_and_stdout_holds_data_only(user: User) -> None:
    printed = user.submits(FOREVER, "-o", "name")
    assert printed.out == f"{NAME}\n"
    assert f"namespace {user.namespace} (-n)" in printed.err
    assert "https://" in printed.err


def test_a_job_that_waits_in_a_queue_takes_changes_of_its_labels_in_place(user: User) -> None:
    user.cluster.require("kueue")
    user.cluster.make_queue(user.namespace, chips=1)
    path = user.write(FOREVER, schedule={"queue": "tpu"})
    assert user.types("submit", path).code == 0
    eventually(lambda: live(user)["spec"].get("suspend"), lambda suspended: suspended is True)
    uid = live(user)["metadata"]["uid"]
    path = user.write(FOREVER, schedule={"queue": "tpu"}, metadata={"labels": {"team": "lm"}})
    printed = user.types("submit", path)
    assert printed.out == f"{NAME} configured\n", printed
    assert live(user)["metadata"]["labels"]["team"] == "lm"
    assert live(user)["metadata"]["uid"] == uid


def test_immutable_fields_are_told_as_a_short_list_with_the_remedy(user: User) -> None:
    user.submits(FOREVER)
    printed = user.types("submit", user.write("sleep 2000", slice=TWO_HOSTS))
    assert printed.code == 4
    assert "cannot change in place" in printed.err
    assert "template.spec.parallelism: 1 -> 2" in printed.err
    assert "--replace" in printed.err
    assert max(map(len, printed.err.splitlines())) < 400


def test_replace_ends_the_old_job_before_the_new_one_begins(user: User) -> None:
    user.submits("trap '' TERM; sleep 1000")
    eventually(lambda: live(user).get("status", {}).get("replicatedJobsStatus"), bool)
    uid = live(user)["metadata"]["uid"]
    printed = user.submits("sleep 2000", "--replace")
    assert printed.out == f"{NAME} replaced\n"
    assert live(user)["metadata"]["uid"] != uid
    labels = "jobset.sigs.k8s.io/jobset-uid=" + uid
    assert user.cluster.list("Pod", user.namespace, labels=labels) == []


def test_a_replacement_that_the_server_refuses_leaves_the_live_job_running(user: User, no_new_jobs: Forbid) -> None:
    user.submits(FOREVER)
    uid = live(user)["metadata"]["uid"]
    no_new_jobs()
    eventually(
        lambda: user.types("submit", user.write("sleep 2000"), "--replace", "--dry-run=server"), lambda p: p.code != 0
    )
    printed = user.types("submit", user.write("sleep 2000"), "--replace")
    assert (printed.code, "no new jobs on Sundays" in printed.err) == (2, True), printed
    assert live(user)["metadata"]["uid"] == uid


@pytest.fixture
def no_new_jobs(user: User) -> Iterator[Forbid]:
    """Let an admission policy of the cluster refuse every new JobSet of the namespace, once called."""
    name = user.namespace
    match = {
        "resourceRules": [
            {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["jobsets"]}
        ]
    }
    only_here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": match,
            "validations": [{"expression": "false", "message": "no new jobs on Sundays"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": only_here},
    }

    def forbid() -> None:
        for document in (policy, binding):
            user.cluster.create(document)

    yield forbid
    for document in (binding, policy):
        user.cluster.delete(document["kind"], name)


def test_an_object_of_others_is_never_touched(user: User) -> None:
    user.submits(FOREVER)
    user.cluster.delete("JobSet", "tiny", user.namespace)
    eventually(lambda: user.cluster.find("JobSet", "tiny", user.namespace), lambda found: found is None)
    theirs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "tiny", "labels": {"app.kubernetes.io/managed-by": "helm"}},
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "a",
                    "template": {
                        "spec": {
                            "template": {
                                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
                            }
                        }
                    },
                }
            ],
        },
    }
    user.cluster.create(theirs, user.namespace)
    for command in (("submit", user.write(FOREVER)), ("submit", user.write(FOREVER), "--replace"), ("delete", "tiny")):
        printed = user.types(*command)
        assert (printed.code, "helm" in printed.err) == (4, True), printed
    assert live(user)["spec"]["replicatedJobs"][0]["name"] == "a"


def test_fields_of_another_manager_are_a_conflict_until_they_are_taken_over(user: User) -> None:
    user.submits(FOREVER)
    user.cluster.patch("JobSet", "tiny", {"spec": {"ttlSecondsAfterFinished": 5}}, user.namespace)
    assert user.types("diff", user.write(FOREVER)).code == 1
    printed = user.types("submit", user.write(FOREVER))
    assert printed.code == 4
    assert "spec.ttlSecondsAfterFinished: owned by" in printed.err
    assert user.submits(FOREVER, "--force-conflicts").out == f"{NAME} configured\n"
    assert live(user)["spec"]["ttlSecondsAfterFinished"] == 43_200


def test_a_dry_run_asks_and_stores_nothing(user: User) -> None:
    assert user.submits(FOREVER, "--dry-run=server").out == f"{NAME} created (server dry run)\n"
    assert user.submits(FOREVER, "--dry-run=client").out == f"{NAME} created (client dry run)\n"
    assert user.cluster.find("JobSet", "tiny", user.namespace) is None
    user.submits(FOREVER)
    assert user.submits(FOREVER, "--dry-run=server").out == f"{NAME} unchanged (server dry run)\n"
    assert user.submits("sleep 7", "--dry-run=server", "--replace").out == f"{NAME} replaced (server dry run)\n"


def test_a_missing_namespace_is_named(user: User) -> None:
    path = user.write(FOREVER)
    user.namespace = "no-such-namespace"
    printed = user.types("submit", path)
    assert printed.code == 3
    assert "namespace 'no-such-namespace' does not exist" in printed.err


def test_kueue_admits_and_what_it_changes_is_no_difference(user: User, queue: str) -> None:
    sections = {"schedule": {"queue": queue}, "slice": TWO_HOSTS}
    user.submits(FOREVER, **sections)
    eventually(lambda: live(user)["spec"].get("suspend"), lambda suspended: suspended is False)
    eventually(lambda: user.types("status", "tiny", "-o", "json").data["phase"], lambda phase: phase == "Running")
    assert user.types("diff", user.write(FOREVER, **sections)).out == ""
    assert user.submits(FOREVER, **sections).out == f"{NAME} unchanged\n"


def test_wait_ends_with_the_job_and_takes_its_exit_code(user: User) -> None:
    assert user.submits("true", "--wait").code == 0
    failed = user.submits("echo it broke; exit 1", "--wait", name="bad")
    assert failed.code == 125
    assert "host 0/0 was the first to fail, with exit code 1: it broke" in failed.err
    assert user.submits(FOREVER, "--wait", "--timeout=2s", name="long").code == 124


def test_a_finished_job_is_unchanged_and_says_how_to_run_it_again(user: User) -> None:
    user.submits("true", "--wait")
    printed = user.submits("true")
    assert printed.out == f"{NAME} unchanged\n"
    assert "has already completed; --replace runs it again" in printed.err
    assert user.submits("true", "--replace", "--wait").out == f"{NAME} replaced\n"


def test_delete_waits_until_nothing_is_left_and_is_exact_about_what_is_missing(user: User) -> None:
    user.submits(FOREVER, slice=ONE_HOST)
    eventually(lambda: user.cluster.list("Pod", user.namespace), bool)
    printed = user.types("delete", "tiny")
    assert (printed.code, printed.out) == (0, f"{NAME} deleted\n")
    assert f"namespace {user.namespace} (-n)" in printed.err
    assert "https://" in printed.err
    for kind in ("JobSet", "Job", "Pod"):
        assert user.cluster.list(kind, user.namespace) == []
    assert user.types("delete", "tiny").code == 3
    assert user.types("delete", "tiny", "--ignore-not-found").code == 0


def test_delete_of_all_asks_for_yes_where_nobody_can_answer(user: User) -> None:
    user.submits(FOREVER, name="one")
    assert user.types("delete", "--all").code == 2
    assert user.types("delete", "--all", "--yes").out == "jobset.jobset.x-k8s.io/one deleted\n"
