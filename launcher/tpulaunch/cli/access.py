"""The cluster flags as kubectl spells them, added to a command in one line, and the connection they lead to."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tpulaunch.errors import InputError

if TYPE_CHECKING:
    from tpulaunch.cluster.api import Api
    from tpulaunch.cluster.kubeconfig import Flags

_PANEL: dict[str, Any] = {"show_default": False}
_OPTIONS: dict[str, Any] = {
    "namespace": Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace.", **_PANEL)],
    "context": Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.", **_PANEL)],
    "kubeconfig": Annotated[str | None, typer.Option("--kubeconfig", help="File; before KUBECONFIG.", **_PANEL)],
    "cluster": Annotated[str | None, typer.Option("--cluster", help="Cluster of the kubeconfig.", **_PANEL)],
    "user": Annotated[str | None, typer.Option("--user", help="User of the kubeconfig.", **_PANEL)],
    "impersonate": Annotated[str | None, typer.Option("--as", help="Act as this user.", **_PANEL)],
    "impersonate_groups": Annotated[
        list[str] | None, typer.Option("--as-group", help="Act as a member of this group.", **_PANEL)
    ],
    "request_timeout": Annotated[
        str | None, typer.Option("--request-timeout", help="Limit of a single request, 30s.", **_PANEL)
    ],
    "verbosity": Annotated[
        int | None, typer.Option("-v", "--v", min=0, help="From 1 on, requests are shown on stderr.", **_PANEL)
    ],
}


@dataclass(frozen=True)
class Access:
    """What the flags say about the cluster."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    cluster: str | None = None
    user: str | None = None
    impersonate: str | None = None
    impersonate_groups: list[str] | None = field(default=None)
    request_timeout: str | None = None
    verbosity: int | None = None

    def flags(self) -> Flags:
        """Return the flags as the cluster room takes them."""
        from tpulaunch.cluster.kubeconfig import Flags

        return Flags(
            kubeconfig=self.kubeconfig,
            context=self.context,
            cluster=self.cluster,
            user=self.user,
            namespace=self.namespace,
            impersonate=self.impersonate,
            impersonate_groups=tuple(self.impersonate_groups or ()),
            request_timeout_seconds=seconds(self.request_timeout, "--request-timeout") or None,
            tell_request=say if self.verbosity else None,
        )

    def connect(self) -> Api:
        """Return a connection to a server that has answered."""
        from tpulaunch.cluster.connection import connect

        return connect(self.flags())

    def namespace_in(self, api: Api, spec: str | None = None) -> tuple[str, str]:
        """Return the namespace and where it comes from: flag, spec, context, ``default``."""
        from tpulaunch.cluster.kubeconfig import choose_namespace

        return choose_namespace(self.namespace, spec, api.target)


def with_access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the cluster flags; what they say arrives as its parameter ``access``."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    own = [p.replace(annotation=hints[p.name]) for p in signature.parameters.values() if p.name != "access"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        access = Access(**{name: values.pop(name) for name in _OPTIONS})
        return command(access=access, **values)

    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
    return run


def seconds(text: str | None, flag: str) -> float | None:
    """Return the value of a duration flag in seconds, or None where it was not given.

    Raises:
        InputError: It is no duration.
    """
    if text is None:
        return None
    from tpulaunch.cluster.durations import parse_duration

    try:
        value = parse_duration(text)
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from None
    if value < 0:
        raise InputError(f"{flag}: found {text}; wanted a duration that is not negative")
    return value


def say(text: str) -> None:
    """Write one line for people to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
