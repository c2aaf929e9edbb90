from __future__ import annotations

import json

import pytest

from tests.launcher.builders import environment_of, plan_of, refusals_of, spec_text
from tpulaunch.plan import Switches, job_digest, make_plan
from tpulaunch.plan.values import FromField, FromSecret, Literally
from tpuworker.spec import load_job

CLAIM = {"name": "pool", "mount_path": "/pool", "pvc": {"claim": "pool"}}
SCRATCH = {"name": "fast", "mount_path": "/fast", "scratch": {"scratch_gib": 10}}
NESTED = {"name": "nested", "mount_path": "/pool/scratch", "scratch": {"scratch_gib": 10}}


def test_slices_are_jobs_and_hosts_are_pods() -> None:
    plan = plan_of(slice={"count": 3}, data={"global_batch_size": 96})
    assert (plan.num_slices, plan.hosts_per_slice, plan.num_hosts) == (3, 4, 12)
    assert plan.container.chips == 4


def test_only_a_slice_of_several_hosts_gets_a_node_pool_of_its_own() -> None:
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert dict(plan_of().annotations)[key] == "cloud.google.com/gke-nodepool"
    assert key not in dict(plan_of(slice={"topology": "2x2"}).annotations)


def test_the_ambiguous_topology_is_told_apart_by_chips_per_node() -> None:
    key = "cloud.google.com/gke-accelerator-count"
    one = plan_of(slice={"topology": "2x4", "machine": "ct6e-standard-8t"})
    two = plan_of(slice={"topology": "2x4", "machine": "ct6e-standard-4t"})
    assert (one.hosts_per_slice, dict(one.node_selector)[key]) == (1, "8")
    assert (two.hosts_per_slice, dict(two.node_selector)[key]) == (2, "4")
    assert key not in dict(plan_of().node_selector)


def test_pods_say_who_they_are_through_the_downward_api() -> None:
    environment = environment_of(plan_of())
    label = "metadata.labels['jobset.sigs.k8s.io/{}']"
    assert environment["TPULAUNCH_SLICE_INDEX"] == FromField("TPULAUNCH_SLICE_INDEX", label.format("job-index"))
    attempt = FromField("TPULAUNCH_RESTART_ATTEMPT", label.format("restart-attempt"))
    assert environment["TPULAUNCH_RESTART_ATTEMPT"] == attempt
    assert environment["TPULAUNCH_COORDINATOR"] == Literally("TPULAUNCH_COORDINATOR", "tiny-slice-0-0.tiny")


def test_the_launcher_sets_no_variable_of_the_platform() -> None:
    names = environment_of(plan_of(slice={"count": 2})).keys()
    assert not [name for name in names if name.startswith(("TPU_", "MEGASCALE_")) or name == "JOB_COMPLETION_INDEX"]


def test_explicit_multislice_variables_are_written_for_several_slices_only() -> None:
    explicit = {"multislice_env": "explicit"}
    environment = environment_of(plan_of(slice={"count": 2}, schedule=explicit))
    assert environment["MEGASCALE_NUM_SLICES"].value == "2"
    assert environment["MEGASCALE_SLICE_ID"].field_path == "metadata.labels['jobset.sigs.k8s.io/job-index']"
    assert environment["MEGASCALE_COORDINATOR_ADDRESS"].value == "tiny-slice-0-0.tiny"
    assert "MEGASCALE_SLICE_ID" not in environment_of(plan_of(schedule=explicit))


def test_a_proof_alone_is_an_object_of_its_own_beside_the_job() -> None:
    text = spec_text()
    plan = make_plan(load_job(text), text, switches=Switches(preflight_only=True))
    environment = environment_of(plan)
    assert plan.name == "tiny-preflight"
    assert environment["TPULAUNCH_PREFLIGHT_ONLY"] == Literally("TPULAUNCH_PREFLIGHT_ONLY", "1")
    assert environment["TPULAUNCH_COORDINATOR"].value == "tiny-preflight-slice-0-0.tiny-preflight"
    assert "TPULAUNCH_PREFLIGHT_ONLY" not in environment_of(plan_of())


def test_a_users_variable_replaces_a_default_and_comes_once() -> None:
    train = {
        "entrypoint": "trainer.main",
        "env": {"HOME": "/data"},
        "secrets": {"HF_HOME": {"secret": "a", "key": "b"}},
    }
    plan = plan_of(train=train)
    names = [variable.name for variable in plan.container.env]
    assert len(names) == len(set(names))
    assert environment_of(plan)["HOME"] == Literally("HOME", "/data")
    assert environment_of(plan)["HF_HOME"] == FromSecret("HF_HOME", "a", "b")


def test_what_the_kubelet_would_expand_is_escaped() -> None:
    env = {"A": "$(HOME)", "B": "$HOME", "C": "a$$b", "D": "x $ y"}
    environment = environment_of(plan_of(train={"env": env}))
    assert [environment[name].value for name in "ABCD"] == ["$$(HOME)", "$HOME", "a$$$$b", "x $ y"]


def test_labels_are_on_the_jobset_and_its_pods_and_the_queue_is_on_the_jobset_only() -> None:
    plan = plan_of(metadata={"name": "tiny", "labels": {"team": "lm"}}, schedule={"queue": "tpu", "priority": "high"})
    jobset, pod = dict(plan.labels), dict(plan.pod_labels)
    assert jobset["team"] == pod["team"] == "lm"
    assert jobset["app.kubernetes.io/managed-by"] == pod["app.kubernetes.io/managed-by"] == "tpulaunch"
    assert jobset["kueue.x-k8s.io/queue-name"] == "tpu"
    assert jobset["kueue.x-k8s.io/priority-class"] == "high"
    assert not [key for key in pod if "kueue" in key]


def test_a_restart_that_cures_nothing_does_not_happen() -> None:
    plan = plan_of()
    disruption, exit_codes = plan.pod_rules
    assert disruption.condition == "DisruptionTarget"
    assert (exit_codes.container, exit_codes.not_in_exit_codes) == ("worker", (42, *range(128, 256)))
    assert [rule.action for rule in plan.jobset_rules] == ["RestartJobSetAndIgnoreMaxRestarts", "FailJobSet"]


def test_a_job_that_ran_too_long_ends_and_is_not_run_as_long_again() -> None:
    plan = plan_of(schedule={"max_run_seconds": 3600})
    assert plan.active_deadline_seconds == 3600
    last = plan.jobset_rules[-1]
    assert (last.action, last.reason) == ("FailJobSet", "DeadlineExceeded")


def test_failure_rules_bear_names_that_jobset_takes() -> None:
    for rule in plan_of(schedule={"max_run_seconds": 3600}).jobset_rules:
        assert rule.name.isalnum()
        assert rule.name[0].isalpha()


def test_the_name_of_a_job_without_one_depends_on_login_and_content_alone() -> None:
    text = spec_text(metadata={"name": None})
    job = load_job(text)
    plan = make_plan(job, text, login="Ana.Lópezz_92")
    assert plan.name == f"ana-lopezz-92-{job_digest(job)[:8]}"
    assert dict(plan.annotations)["tpulaunch.dev/submitter"] == "Ana.Lópezz_92"
    assert "Ana" not in json.dumps(plan.labels)
    commented = "# a comment\n" + text.replace(" ", "  ")
    assert make_plan(load_job(commented), commented, login="Ana.Lópezz_92").name == plan.name
    assert make_plan(job, text, login="bob").name != plan.name


def test_a_named_job_renders_the_same_for_everybody() -> None:
    text = spec_text()
    assert make_plan(load_job(text), text, login="ana") == make_plan(load_job(text), text, login="bob")


def test_the_flag_goes_before_the_namespace_of_the_spec() -> None:
    text = spec_text(metadata={"name": "tiny", "namespace": "ml"})
    assert make_plan(load_job(text), text).namespace == "ml"
    assert make_plan(load_job(text), text, namespace="other").namespace == "other"
    assert plan_of().namespace is None


def test_a_cluster_job_needs_an_image_and_the_fault_has_its_line() -> None:
    (fault,) = refusals_of(worker={"image": None})
    assert (fault.path, fault.line) == ("spec.worker.image", 14)


def test_a_spec_too_large_for_an_annotation_is_refused() -> None:
    files = [f"gs://bucket/{number:090d}.parquet" for number in range(2000)]
    data = {"sources": [{"files": files}]}
    (fault,) = refusals_of(data=data)
    assert fault.path == "document"
    assert fault.wanted.startswith("at most 204800")


def test_root_is_a_choice() -> None:
    assert plan_of().security.user == 1000
    assert plan_of().security.is_not_root
    assert not plan_of(worker={"user": 0}).security.is_not_root


def test_the_api_token_is_mounted_for_a_named_account_only() -> None:
    assert not plan_of().mount_token
    assert plan_of(worker={"service_account": "trainer"}).mount_token


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ({"slice": {"topology": "2x2", "count": 2}}, "spec.slice.count: multislice"),
        ({"worker": {"image": "example.com/tpuworker:latest"}}, "spec.worker.image: not pinned"),
        ({"worker": {"memory_gib": 600}}, "spec.worker.memory_gib: above the 576 GiB"),
        ({"schedule": {"capacity": "spot", "grace_seconds": 60}}, "spec.schedule.grace_seconds: Spot gives about 15 s"),
        ({"schedule": {"restarts": 1}}, "spec.checkpoint: none"),
        ({"worker": {"host_network": True, "service_account": "a"}}, "spec.worker.host_network: the metadata server"),
        ({"data": {"sources": [{"hub": "a/b"}]}}, "spec.data.sources[0].revision: not pinned"),
        ({"data": {"sources": [{"files": "/data/*.parquet"}]}}, "spec.data.sources[0].files: /data/*.parquet must be"),
        ({"checkpoint": {"dir": "/runs"}}, "spec.checkpoint.dir: /runs ends with the pod, since no volume"),
        (
            {"checkpoint": {"dir": "/fast/runs"}, "worker": {"volumes": [SCRATCH]}},
            "spec.checkpoint.dir: /fast/runs ends with the pod, since volume fast is scratch",
        ),
        (
            {"checkpoint": {"dir": "/pool/scratch/runs"}, "worker": {"volumes": [CLAIM, NESTED]}},
            "spec.checkpoint.dir: /pool/scratch/runs ends with the pod, since volume nested is scratch",
        ),
    ],
)
def test_what_is_worth_a_second_look_is_remarked_and_not_refused(sections: dict[str, object], part: str) -> None:
    assert [remark for remark in plan_of(**sections).remarks if remark.startswith(part)]


@pytest.mark.parametrize("directory", ["gs://runs/tiny", "/pool/runs", "/fast/pool/runs"])
def test_a_careful_job_has_no_remark(directory: str) -> None:
    inner = {**CLAIM, "name": "inner", "mount_path": "/fast/pool"}
    plan = plan_of(
        data={"sources": [{"files": "gs://b/*.parquet"}]},
        checkpoint={"dir": directory},
        worker={"volumes": [CLAIM, SCRATCH, inner]},
    )
    assert plan.remarks == ()
