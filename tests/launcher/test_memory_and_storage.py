from __future__ import annotations

from typing import Any

import pytest

from tests.launcher.builders import plan_of, refusals_of, refused_paths
from tpulaunch.plan.values import AnnotationFile, Claim, EmptyDir, Fuse, JobPlan, Volume


def bucket(name: str = "data", path: str = "/data", **options: Any) -> dict[str, Any]:
    return {"name": name, "mount_path": path, "read_only": True, "gcsfuse": {"bucket": "my-bucket", **options}}


def volumes_of(plan: JobPlan) -> dict[str, Volume]:
    return {volume.name: volume for volume in plan.volumes}


def mounts_of(plan: JobPlan) -> dict[str, str]:
    return {mount.path: mount.name for mount in plan.container.mounts}


def test_a_container_gets_what_can_be_planned_with_and_shared_memory_inside_it() -> None:
    plan = plan_of()
    assert plan.container.memory == "576Gi"  # 0.8 of 720
    assert volumes_of(plan)["tpulaunch-shm"] == EmptyDir("tpulaunch-shm", "Memory", "72Gi")
    assert mounts_of(plan)["/dev/shm"] == "tpulaunch-shm"


def test_file_caches_and_their_side_container_are_taken_from_the_workers_memory() -> None:
    plan = plan_of(worker={"volumes": [bucket(file_cache_gib=64), bucket("more", "/more", file_cache_gib=36)]})
    assert plan.container.memory == "475Gi"  # 576 - 64 - 36 - 1
    assert volumes_of(plan)["gke-gcsfuse-cache"] == EmptyDir("gke-gcsfuse-cache", "Memory", "100Gi")
    assert dict(plan.pod_annotations)["gke-gcsfuse/volumes"] == "true"
    assert dict(plan.pod_annotations)["gke-gcsfuse/memory-limit"] == "101Gi"


def test_a_pod_without_a_bucket_gets_no_side_container() -> None:
    assert "gke-gcsfuse/volumes" not in dict(plan_of().pod_annotations)


@pytest.mark.parametrize(
    ("worker", "path"),
    [
        ({"memory_gib": 700}, "spec.worker.memory_gib"),  # a ct6e-standard-4t has 720 and gives 699
        ({"memory_gib": 640, "volumes": [bucket(file_cache_gib=64)]}, "spec.worker.memory_gib"),
        ({"memory_gib": 64, "shared_memory_gib": 64}, "spec.worker.shared_memory_gib"),
        (
            {
                "memory_gib": 64,
                "volumes": [{"name": "s", "mount_path": "/s", "scratch": {"scratch_gib": 60, "medium": "memory"}}],
            },
            "spec.worker.volumes",
        ),
    ],
)
def test_memory_that_the_host_does_not_have_is_refused(worker: dict[str, Any], path: str) -> None:
    assert refused_paths(worker=worker) == [path]


def test_the_refusal_says_what_fits() -> None:
    (fault,) = refusals_of(worker={"memory_gib": 700})
    assert fault.found == "700 GiB a host"
    assert fault.wanted == "at most 699 GiB, which is all that pods can get of a ct6e-standard-4t"
    assert fault.hint == "write 576 or leave it out"
    assert fault.line is not None


def test_disk_scratch_costs_no_memory() -> None:
    scratch = {"name": "s", "mount_path": "/s", "scratch": {"scratch_gib": 5000}}
    plan = plan_of(worker={"volumes": [scratch]})
    assert volumes_of(plan)["s"] == EmptyDir("s", None, "5000Gi")
    assert plan.container.memory == "576Gi"


def test_the_spec_is_shown_as_a_file_made_of_an_annotation() -> None:
    plan = plan_of()
    volume = volumes_of(plan)["tpulaunch-spec"]
    assert volume == AnnotationFile("tpulaunch-spec", "job.yaml", "tpulaunch.dev/spec")
    assert volume.field_path == "metadata.annotations['tpulaunch.dev/spec']"
    assert mounts_of(plan)["/etc/tpulaunch"] == "tpulaunch-spec"


def test_there_is_scratch_space_beside_a_root_that_nobody_writes() -> None:
    plan = plan_of()
    assert plan.security.read_only_root
    assert volumes_of(plan)["tpulaunch-tmp"] == EmptyDir("tpulaunch-tmp")
    assert mounts_of(plan)["/tmp"] == "tpulaunch-tmp"


def test_a_volume_of_the_user_replaces_the_scratch_space() -> None:
    plan = plan_of(worker={"volumes": [{"name": "big", "mount_path": "/tmp", "scratch": {"scratch_gib": 500}}]})
    assert mounts_of(plan)["/tmp"] == "big"
    assert "tpulaunch-tmp" not in volumes_of(plan)


def test_buckets_and_claims_are_mounted_as_asked() -> None:
    claim = {"name": "model", "mount_path": "/model", "read_only": True, "pvc": {"claim": "base"}}
    plan = plan_of(worker={"volumes": [bucket(mount_options=["implicit-dirs", "only-dir=a"], file_cache_gib=8), claim]})
    attributes = (
        ("bucketName", "my-bucket"),
        ("mountOptions", "implicit-dirs,only-dir=a"),
        ("fileCacheCapacity", "8Gi"),
        ("fileCacheForRangeRead", "true"),
    )
    assert volumes_of(plan)["data"] == Fuse("data", True, attributes)
    assert volumes_of(plan)["model"] == Claim("model", "base", True)


def test_a_bucket_on_the_hosts_network_uses_the_pods_account() -> None:
    plan = plan_of(worker={"host_network": True, "volumes": [bucket()]})
    volume = volumes_of(plan)["data"]
    assert isinstance(volume, Fuse)
    assert dict(volume.attributes)["hostNetworkPodKSA"] == "true"


@pytest.mark.parametrize(
    "path", ["data", "/", "/data/", "/a/../b", "/a:b", "/dev/shm", "/etc/tpulaunch", "//data", "/a/./b"]
)
def test_a_path_that_cannot_be_mounted_is_refused(path: str) -> None:
    assert refused_paths(worker={"volumes": [bucket(path=path)]}) == ["spec.worker.volumes[0].mount_path"]


@pytest.mark.parametrize("name", ["gke-gcsfuse-cache", "tpulaunch-x", "Data", "a_b"])
def test_a_volume_name_that_is_taken_or_invalid_is_refused(name: str) -> None:
    assert refused_paths(worker={"volumes": [bucket(name=name)]}) == ["spec.worker.volumes[0].name"]
