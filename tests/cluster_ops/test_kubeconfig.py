"""Case C11: the cluster, the user and the namespace that are meant, and nothing else."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tpulaunch.cluster.connection import connect, find_target, open_api
from tpulaunch.cluster.errors import AccessError, UnreachableError
from tpulaunch.cluster.kubeconfig import Flags, choose_namespace

#: The promise is five seconds; a machine that builds at the same time gets twice that before it counts as a hang.
HANG_SECONDS = 10.0


def write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        YAML().dump(document, file)
    return path


def make_config(*, current: str | None = "a", names: tuple[str, ...] = ("a", "b"), **user: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": f"cluster-{n}", "cluster": {"server": f"https://{n}.example:6443/"}} for n in names],
        "users": [{"name": f"user-{n}", "user": user or {"token": f"token-{n}"}} for n in names],
        "contexts": [
            {"name": n, "context": {"cluster": f"cluster-{n}", "user": f"user-{n}", "namespace": f"team-{n}"}}
            for n in names
        ],
    }
    if current is not None:
        config["current-context"] = current
    return config


def test_the_flag_goes_before_the_variable_and_the_variable_before_the_default_file(tmp_path: Path) -> None:
    flag = write(tmp_path / "flag", make_config(names=("a",)))
    variable = write(tmp_path / "variable", make_config(current="b", names=("b",)))
    write(tmp_path / "home/.kube/config", make_config(current="c", names=("c",)))
    home = tmp_path / "home"
    assert find_target(Flags(kubeconfig=str(flag)), {"KUBECONFIG": str(variable)}, home).context == "a"
    assert find_target(Flags(), {"KUBECONFIG": str(variable)}, home).context == "b"
    assert find_target(Flags(), {}, home).context == "c"


def test_of_several_files_the_first_to_name_something_wins_and_missing_files_are_skipped(tmp_path: Path) -> None:
    first = write(tmp_path / "first", make_config(current="a", names=("a",)))
    second = write(tmp_path / "second", make_config(current="b", names=("a", "b")))
    listed = {"KUBECONFIG": f"{tmp_path}/missing:{first}:{second}"}
    assert find_target(Flags(), listed, tmp_path).server == "https://a.example:6443"
    assert find_target(Flags(context="b"), listed, tmp_path).server == "https://b.example:6443"


def test_files_named_in_a_kubeconfig_are_looked_for_beside_it(tmp_path: Path) -> None:
    config = make_config(names=("a",), **{"client-certificate": "pki/c.crt", "tokenFile": "/abs/token"})
    path = write(tmp_path / "sub/config", config)
    user = find_target(Flags(kubeconfig=str(path)), {}, tmp_path).user
    assert user == {"client-certificate": str(tmp_path / "sub/pki/c.crt"), "tokenFile": "/abs/token"}


def test_context_cluster_and_user_can_each_be_overridden(tmp_path: Path) -> None:
    path = str(write(tmp_path / "config", make_config()))
    target = find_target(Flags(kubeconfig=path, context="b", cluster="cluster-a", user="user-a"), {}, tmp_path)
    assert (target.server, target.user_name, target.namespace) == ("https://a.example:6443", "user-a", "team-b")


@pytest.mark.parametrize(
    ("flags", "current", "words"),
    [
        ({}, "gone", "current-context names 'gone', which does not exist; wanted one of a, b"),
        ({"context": "c"}, "a", "--context names 'c'"),
        ({}, None, "no current-context is set; choose one with --context (a, b)"),
        ({"cluster": "x"}, "a", "means cluster 'x', which does not exist; wanted one of cluster-a, cluster-b"),
        ({"user": "x"}, "a", "means user 'x'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_and_the_valid_ones_are_named(
    tmp_path: Path, flags: dict[str, str], current: str | None, words: str
) -> None:
    path = write(tmp_path / "config", make_config(current=current))
    with pytest.raises(AccessError) as refused:
        find_target(Flags(kubeconfig=str(path), **flags), {}, tmp_path)
    assert words in str(refused.value)


def test_no_configuration_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"\.kube/config; get one with"):
        find_target(Flags(), {}, tmp_path)
    with pytest.raises(AccessError, match="does not exist"):
        find_target(Flags(kubeconfig=str(tmp_path / "none")), {}, tmp_path)


@pytest.mark.parametrize("text", ["- a list", "a: [unclosed", "contexts: [{context: {}}]", "plain words"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(AccessError, match="config"):
        find_target(Flags(kubeconfig=str(path)), {}, tmp_path)


def test_a_kubeconfig_goes_before_the_service_account_of_the_pod(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", make_config())
    in_a_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert find_target(Flags(), in_a_pod, tmp_path).context == "a"


def test_the_namespace_comes_from_flag_then_spec_then_context_then_default(tmp_path: Path) -> None:
    path = write(tmp_path / "config", make_config())
    target = find_target(Flags(kubeconfig=str(path)), {}, tmp_path)
    assert choose_namespace("flag", "spec", target) == ("flag", "-n")
    assert choose_namespace(None, "spec", target) == ("spec", "spec")
    assert choose_namespace(None, None, target) == ("team-a", "context")
    config = make_config()
    del config["contexts"][0]["context"]["namespace"]
    bare = find_target(Flags(kubeconfig=str(write(tmp_path / "bare", config))), {}, tmp_path)
    assert choose_namespace(None, None, bare) == ("default", "default")


def test_a_missing_auth_plugin_is_named_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "ask the platform team",
    }
    path = write(tmp_path / "config", make_config(exec=plugin))
    with pytest.raises(AccessError) as refused:
        connect(Flags(kubeconfig=str(path)), {}, tmp_path)
    words = str(refused.value)
    assert "user 'user-a': auth plug-in 'gke-gcloud-auth-plugin' is not installed" in words
    assert "gcloud components install gke-gcloud-auth-plugin" in words
    assert "ask the platform team" in words


def write_plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}


def test_a_plugin_beside_the_kubeconfig_gives_the_token_and_a_failing_one_its_own_words(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path, """echo '{"status": {"token": "t0"}}'""")
    path = write(tmp_path / "config", make_config(exec=plugin))
    flags = Flags(kubeconfig=str(path))
    api = open_api(find_target(flags, {}, tmp_path), flags)
    assert api._configuration.auth_settings()["BearerToken"]["value"] == "Bearer t0"
    write_plugin(tmp_path, "echo 'please log in' >&2; exit 7")
    with pytest.raises(AccessError, match="exit code 7: please log in"):
        open_api(find_target(flags, {}, tmp_path), flags)
    write_plugin(tmp_path, "echo nonsense")
    with pytest.raises(AccessError, match="no ExecCredential"):
        open_api(find_target(flags, {}, tmp_path), flags)


def test_a_token_is_asked_for_again_before_it_expires(tmp_path: Path) -> None:
    counting = f"""echo x >> {tmp_path}/calls
n=$(wc -l < {tmp_path}/calls)
echo '{{"status": {{"token": "t'$n'", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}'"""
    path = write(tmp_path / "config", make_config(exec=write_plugin(tmp_path, counting)))
    flags = Flags(kubeconfig=str(path))
    api = open_api(find_target(flags, {}, tmp_path), flags)
    tokens = [api._configuration.auth_settings()["BearerToken"]["value"] for _ in range(2)]
    assert tokens[0] != tokens[1]


@pytest.mark.parametrize(
    "server",
    [
        "https://127.0.0.1:1",  # refuses
        "https://192.0.2.1:6443",  # swallows packets (TEST-NET-1)
        "https://no-such-host.invalid:6443",
    ],
)
def test_a_dead_server_is_told_within_five_seconds_without_a_trace(tmp_path: Path, server: str) -> None:
    config = make_config(names=("a",))
    config["clusters"][0]["cluster"]["server"] = server
    path = write(tmp_path / "config", config)
    start = time.monotonic()
    with pytest.raises(UnreachableError) as refused:
        connect(Flags(kubeconfig=str(path)), {}, tmp_path)
    assert time.monotonic() - start < HANG_SECONDS
    assert server in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_kubeconfig_is_never_written(tmp_path: Path) -> None:
    path = write(tmp_path / "config", make_config(exec=write_plugin(tmp_path, """echo '{"status": {"token": "t"}}'""")))
    before = path.read_bytes(), path.stat().st_mtime_ns
    flags = Flags(kubeconfig=str(path), context="b")
    open_api(find_target(flags, {}, tmp_path), flags)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
