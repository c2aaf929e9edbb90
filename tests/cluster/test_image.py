"""The worker image is what the Dockerfile promises: small rights, nothing to write to, nothing to build with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import images
from tests.cluster.api import Object
from tests.cluster.cluster import Cluster, OwnCluster
from tests.cluster.pools import CHIP
from tests.cluster.workloads import container, pod

pytestmark = pytest.mark.cluster

NODE = "v5e-0"
MIB = 2**20
# What a pod of the launcher is given, and no more.
CONFINED: Object = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def jax_archive(cluster: Cluster) -> Path:
    cluster.require("load-image")
    return images.archive_of("jax")


@pytest.fixture(scope="module")
def image(cluster: Cluster, jax_archive: Path) -> str:
    assert isinstance(cluster, OwnCluster)
    cluster.load_image(jax_archive, [NODE])
    return images.name_of("jax")


def test_it_starts_tpuworker_as_a_plain_user_and_says_what_it_is(jax_archive: Path) -> None:
    configuration = images.configuration_of(jax_archive)["config"]
    assert configuration["Entrypoint"] == ["tpuworker"]
    assert configuration["User"] == "1000:1000"
    labels = configuration["Labels"]
    assert labels["org.opencontainers.image.title"] == "tpuworker"
    assert (labels["dev.tpulaunch.backend"], labels["dev.tpulaunch.runtime"]) == ("jax", "cpu")


def test_the_sources_lie_in_a_layer_of_their_own_that_is_small(jax_archive: Path) -> None:
    # Debian, libraries, project (and, from some builders, one of metadata).
    base, libraries, *rest = images.layer_bytes(jax_archive)
    assert base < 250 * MIB < libraries < 1400 * MIB
    assert sum(rest) < 10 * MIB


def test_it_works_confined_with_only_tmp_to_write_to(cluster: Cluster, namespace: str, image: str) -> None:
    script = """
        test "$(id -u)" = 1000
        for place in / /opt/project /opt/tpuworker/bin /workspace; do
            if touch "$place/x" 2>/dev/null; then echo "$place can be written"; exit 1; fi
        done
        touch /tmp/x
        python -c 'import tpuworker.main, tpuworker.data, jax; print("sum", jax.numpy.arange(5).sum())'
    """
    ended = _run(cluster, namespace, container(image, script, env=[{"name": "JAX_PLATFORMS", "value": "cpu"}]))
    assert ended["exitCode"] == 0, cluster.logs("worker", namespace)
    assert "sum 10" in cluster.logs("worker", namespace)


def test_it_holds_no_compiler_no_installer_no_cache_and_no_launcher_library(
    cluster: Cluster, namespace: str, image: str
) -> None:
    script = """
        for program in gcc cc c++ g++ clang ld make uv; do
            if command -v "$program"; then exit 1; fi
        done
        for place in /opt/build /src /root/.cache /tmp/.cache /var/cache/apt/archives/*.deb /var/lib/apt/lists/*_*; do
            if [ -e "$place" ]; then echo "$place is there"; exit 1; fi
        done
        for library in kubernetes pip; do
            if python -c "import $library" 2>/dev/null; then echo "$library can be imported"; exit 1; fi
        done
    """
    ended = _run(cluster, namespace, container(image, script))
    assert ended["exitCode"] == 0, cluster.logs("worker", namespace)


def test_without_a_spec_the_worker_refuses_and_the_pod_tells_why(cluster: Cluster, namespace: str, image: str) -> None:
    plain = container(image, "")
    del plain["command"]
    ended = _run(cluster, namespace, plain)
    assert ended["exitCode"] not in (0, 42)
    assert "/etc/tpulaunch/job.yaml" in ended["message"]


def _run(cluster: Cluster, namespace: str, main: Object) -> Object:
    main = {**main, "securityContext": CONFINED, "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    main["resources"] = {"limits": {CHIP: "4", "memory": "2Gi"}}
    wanted = pod(
        "worker", main, accelerator="tpu-v5-lite-podslice", topology="2x2", volumes=[{"name": "tmp", "emptyDir": {}}]
    )
    cluster.create(wanted, namespace)
    done = cluster.wait_for(
        "Pod",
        "worker",
        namespace,
        until=lambda seen: seen["status"]["phase"] in {"Succeeded", "Failed"},
    )
    ended: Object = done["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended
