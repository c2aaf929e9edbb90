"""Which cluster, user and namespace is meant: kubeconfig files merged and resolved as kubectl does, purely."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpulaunch.cluster.errors import AccessError

DEFAULT_NAMESPACE = "default"
_FILE_KEYS = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
    "contexts": ("context", ()),
}


@dataclass(frozen=True)
class Flags:
    """What the command line says about the cluster; None where it says nothing.

    Attributes:
        kubeconfig: ``--kubeconfig``.
        context: ``--context``.
        cluster: ``--cluster``.
        user: ``--user``.
        namespace: ``-n``.
        impersonate: ``--as``.
        impersonate_groups: ``--as-group``, any number of times.
        request_timeout_seconds: ``--request-timeout``; None: no limit for a whole answer.
        tell_request: ``-v``: hears of each request in one line, its body left out.
    """

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None
    impersonate: str | None = None
    impersonate_groups: tuple[str, ...] = ()
    request_timeout_seconds: float | None = None
    tell_request: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Kubeconfig:
    """One or several kubeconfig files as one; the first file to name something wins, as with kubectl.

    Attributes:
        source: The files, for messages.
        current_context: Name of the current context, or empty.
        contexts: Context by name.
        clusters: Cluster by name, its files with absolute paths.
        users: User by name, its files with absolute paths.
    """

    source: str
    current_context: str
    contexts: dict[str, dict[str, Any]]
    clusters: dict[str, dict[str, Any]]
    users: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Target:
    """Where requests go.

    Attributes:
        source: Where it was found, for messages: file names, or ``in-cluster service account``.
        context: Name of the context; empty inside a cluster.
        server: URL of the API server.
        namespace: Namespace of the context, or None if it says none.
        cluster: The cluster's section of the kubeconfig.
        user: The user's section of the kubeconfig.
        user_name: The user's name, for messages.
    """

    source: str
    context: str
    server: str
    namespace: str | None
    cluster: dict[str, Any] = field(default_factory=dict, repr=False)
    user: dict[str, Any] = field(default_factory=dict, repr=False)  # holds credentials
    user_name: str = ""

    @property
    def is_in_cluster(self) -> bool:
        """Whether this process runs in a pod and uses its service account."""
        return not self.context and not self.cluster


def kubeconfig_paths(flags: Flags, environment: Mapping[str, str], home: Path) -> tuple[tuple[Path, ...], bool]:
    """Return the files to read and whether they must exist: flag, then ``KUBECONFIG``'s list, then the default."""
    if flags.kubeconfig:
        return (Path(flags.kubeconfig).expanduser(),), True
    listed = [part for part in environment.get("KUBECONFIG", "").split(":") if part]
    if listed:
        return tuple(Path(part).expanduser() for part in listed), False
    return (home / ".kube" / "config",), False


def merge(documents: Sequence[tuple[Path, Any]]) -> Kubeconfig:
    """Return several kubeconfig documents as one.

    Raises:
        AccessError: A document is no kubeconfig.
    """
    sections: dict[str, dict[str, dict[str, Any]]] = {key: {} for key in _FILE_KEYS}
    current = ""
    for path, document in documents:
        if document is None:  # kubectl takes an empty file for an empty configuration
            continue
        if not isinstance(document, dict):
            raise AccessError(f"{path}: found no mapping; wanted a kubeconfig")
        current = current or str(document.get("current-context") or "")
        for key, (inner, file_keys) in _FILE_KEYS.items():
            for entry in document.get(key) or ():
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise AccessError(f"{path}: {key}: found an entry without a name; wanted name and {inner}")
                value = _with_absolute_paths(entry.get(inner) or {}, file_keys, path.parent)
                sections[key].setdefault(str(entry["name"]), value)
    return Kubeconfig(
        source=", ".join(str(path) for path, _ in documents),
        current_context=current,
        contexts=sections["contexts"],
        clusters=sections["clusters"],
        users=sections["users"],
    )


def _with_absolute_paths(value: dict[str, Any], file_keys: tuple[str, ...], folder: Path) -> dict[str, Any]:
    absolute: dict[str, Any] = {key: str((folder / value[key]).absolute()) for key in file_keys if value.get(key)}
    command = (value.get("exec") or {}).get("command", "")
    if "/" in command:  # a relative plug-in is looked for beside the kubeconfig
        absolute["exec"] = {**value["exec"], "command": str((folder / command).absolute())}
    return {**value, **absolute}


def resolve(config: Kubeconfig, flags: Flags) -> Target:
    """Return the target that the flags choose from a kubeconfig.

    Raises:
        AccessError: A context, cluster or user that is named does not exist, or none is chosen.
    """
    name = flags.context or config.current_context
    if not name and not flags.cluster:
        raise AccessError(
            f"{config.source}: no current-context is set; "
            f"choose one with --context ({_names(config.contexts)}) or kubectl config use-context"
        )
    if name and name not in config.contexts and not (flags.cluster and not flags.context):
        place = "--context" if flags.context else "current-context"
        raise AccessError(
            f"{config.source}: {place} names {name!r}, which does not exist; wanted one of {_names(config.contexts)}"
        )
    context = config.contexts.get(name, {})
    cluster_name = flags.cluster or str(context.get("cluster") or "")
    user_name = flags.user or str(context.get("user") or "")
    cluster = _named(config, "cluster", cluster_name, config.clusters, name)
    user = _named(config, "user", user_name, config.users, name) if user_name else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server:
        raise AccessError(f"{config.source}: cluster {cluster_name!r} has no server")
    namespace = str(context["namespace"]) if context.get("namespace") else None
    return Target(config.source, name or cluster_name, server, namespace, cluster, user, user_name)


def _named(
    config: Kubeconfig, kind: str, name: str, entries: dict[str, dict[str, Any]], context: str
) -> dict[str, Any]:
    if name in entries:
        return entries[name]
    raise AccessError(
        f"{config.source}: context {context!r} means {kind} {name!r}, which does not exist; "
        f"wanted one of {_names(entries)} (--{kind})"
    )


def choose_namespace(flag: str | None, spec: str | None, target: Target) -> tuple[str, str]:
    """Return the namespace and where it comes from: flag, then spec, then context, then ``default``."""
    where = "service account" if target.is_in_cluster else "context"
    candidates = ((flag, "-n"), (spec, "spec"), (target.namespace, where), (DEFAULT_NAMESPACE, "default"))
    return next((value, source) for value, source in candidates if value)


def _names(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "(there are none)"
