"""From flags and kubeconfig to a checked connection; the kubeconfig is only ever read."""

from __future__ import annotations

import base64
import os
import queue
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpulaunch.cluster.api import CONNECT_SECONDS, Api
from tpulaunch.cluster.errors import AccessError, UnreachableError
from tpulaunch.cluster.kubeconfig import Flags, Target, kubeconfig_paths, merge, resolve
from tpulaunch.cluster.plugin import Credentials, ask_plugin
from tpulaunch.errors import LauncherError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: A server that is up but says nothing counts as dead after this; name resolution is included.
_ANSWER_SECONDS = 3.5


def find_target(flags: Flags, environment: Mapping[str, str] | None = None, home: Path | None = None) -> Target:
    """Return where requests go: ``--kubeconfig``, ``KUBECONFIG``, ``~/.kube/config``, or the pod's service account.

    Args:
        flags: What the command line says.
        environment: Environment of the process; default: the real one.
        home: Home directory; default: the user's.

    Raises:
        AccessError: A file is no kubeconfig, a name in it leads nowhere, or there is no configuration at all.
    """
    environment = os.environ if environment is None else environment
    paths, must_exist = kubeconfig_paths(flags, environment, home or Path.home())
    found = [path for path in paths if path.is_file()]
    if must_exist and not found:
        raise AccessError(f"--kubeconfig: {paths[0]} does not exist")
    if found:
        config = merge([(path, _load(path)) for path in found])
        if config.contexts or config.clusters:
            return resolve(config, flags)
    if environment.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").is_file():
        return _in_cluster(environment)
    looked = ", ".join(str(path) for path in paths)
    raise AccessError(
        f"no cluster is configured: looked for {looked}; "
        "get one with `gcloud container clusters get-credentials CLUSTER`, or pass --kubeconfig"
    )


def _load(path: Path) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]  # a YAML error quotes the text around it, and that may be a token
        raise AccessError(f"{path}: is no YAML: {first}") from None
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from None


def _in_cluster(environment: Mapping[str, str]) -> Target:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace_file = _SERVICE_ACCOUNT / "namespace"
    namespace = namespace_file.read_text().strip() if namespace_file.is_file() else None
    return Target("in-cluster service account", "", server, namespace or None)


def connect(flags: Flags, environment: Mapping[str, str] | None = None, home: Path | None = None) -> Api:
    """Return a connection to a server that has answered.

    Raises:
        AccessError: No target, no credentials, or a certificate that does not fit.
        UnreachableError: No answer within five seconds.
    """
    api = open_api(find_target(flags, environment, home), flags)
    _check_answer(api)
    return api


def open_api(target: Target, flags: Flags) -> Api:
    """Return a connection whose server has not been asked anything yet.

    Raises:
        AccessError: The plug-in gives no credentials, or a certificate file is missing.
    """
    # The plug-in first: what it refuses is then told before the client library, which takes a second, is loaded.
    credentials = ask_plugin(target) if target.user.get("exec") else None

    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import load_incluster_config
    from kubernetes.config.kube_config import KubeConfigLoader

    configuration = Configuration()
    configuration.retries = False  # a retry multiplies every time-out; what may be repeated is repeated in Api
    configuration.connection_pool_maxsize = 512  # one stream for every host of a large job
    try:
        if target.is_in_cluster:
            load_incluster_config(client_configuration=configuration)
        else:
            KubeConfigLoader(_one_context(target, credentials)).load_and_set(configuration)
            if credentials and credentials.token:
                _keep_fresh(configuration, target, credentials)
    except ConfigException as error:
        raise AccessError(f"{target.source}: {error}") from None
    headers = {}
    if flags.impersonate:
        headers["Impersonate-User"] = flags.impersonate
    return Api(
        target,
        configuration,
        headers,
        groups=flags.impersonate_groups,
        request_timeout_seconds=flags.request_timeout_seconds,
        tell_request=flags.tell_request,
    )


def _one_context(target: Target, credentials: Credentials | None) -> dict[str, Any]:
    user = {key: value for key, value in target.user.items() if key != "exec"}
    if credentials and credentials.certificate:
        user["client-certificate-data"] = base64.b64encode(credentials.certificate.encode()).decode()
        user["client-key-data"] = base64.b64encode(credentials.key.encode()).decode()
    return {
        "current-context": "target",
        "contexts": [{"name": "target", "context": {"cluster": "target", "user": "target"}}],
        "clusters": [{"name": "target", "cluster": target.cluster}],
        "users": [{"name": "target", "user": user}],
    }


def _keep_fresh(configuration: Any, target: Target, first: Credentials) -> None:
    """Have the token renewed before it expires: a log is followed for days, a GKE token lives an hour."""
    held, lock = [first], threading.Lock()

    def renew(config: Any) -> None:
        with lock:
            if held[0].is_stale(datetime.now(UTC)):
                held[0] = ask_plugin(target)
        config.api_key["BearerToken"] = f"Bearer {held[0].token}"

    configuration.refresh_api_key_hook = renew
    renew(configuration)


def _check_answer(api: Api) -> None:
    """Ask for the version in a thread, since name resolution knows no time-out.

    Raises:
        AccessError: The server refuses the credentials or shows a certificate that does not fit.
        UnreachableError: No answer in time.
    """
    answers: queue.Queue[LauncherError | None] = queue.Queue()

    def ask() -> None:
        try:
            api.get_path("/version", timeout_seconds=CONNECT_SECONDS)
        except LauncherError as error:
            answers.put(error)
        else:
            answers.put(None)

    threading.Thread(target=ask, daemon=True, name="reach").start()
    try:
        error = answers.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        error = UnreachableError(f"{api.where}: no answer in {_ANSWER_SECONDS:g} s; {REACH_HINT}")
    if error is not None:
        raise error


REACH_HINT = "is the cluster up, and is this the right --context?"
