"""Credentials from an exec plug-in of the kubeconfig, run here so that its absence and its words reach the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from tpulaunch.cluster.errors import AccessError
from tpulaunch.cluster.kubeconfig import Target
from tpulaunch.cluster.objects import parse_time

_TIMEOUT_SECONDS = 60
_RENEW_BEFORE = timedelta(seconds=60)

#: How to get the plug-ins people meet; a kubeconfig's own ``installHint`` is shown as well.
INSTALL_HINTS = MappingProxyType(
    {
        "gke-gcloud-auth-plugin": (
            "install it with `gcloud components install gke-gcloud-auth-plugin`, "
            "or `apt-get install google-cloud-cli-gke-gcloud-auth-plugin`"
        ),
        "gcloud": "install the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
        "aws": "install the AWS CLI: https://docs.aws.amazon.com/cli/",
        "aws-iam-authenticator": "install aws-iam-authenticator, or use `aws eks update-kubeconfig`",
        "kubelogin": "install it with `az aks install-cli`",
        "kubectl-oidc_login": "install it with `kubectl krew install oidc-login`",
    }
)


@dataclass(frozen=True)
class Credentials:
    """What a plug-in hands out.

    Attributes:
        token: Bearer token, or empty.
        certificate: Client certificate in PEM, or empty.
        key: Its key in PEM, or empty.
        expires: When to ask again; None: never.
    """

    token: str = field(repr=False, default="")
    certificate: str = field(repr=False, default="")
    key: str = field(repr=False, default="")
    expires: datetime | None = None

    def is_stale(self, now: datetime) -> bool:
        """Say whether it is time to ask again."""
        return self.expires is not None and now >= self.expires - _RENEW_BEFORE


def install_hint(command: str, written: str = "") -> str:
    """Return how to get a missing plug-in: what is known of it, and what the kubeconfig itself says."""
    known = INSTALL_HINTS.get(command.rpartition("/")[2], "install it and make sure it is in PATH")
    return f"{known}\n{written.strip()}" if written.strip() else known


def ask_plugin(target: Target) -> Credentials:
    """Return the credentials that the target's exec plug-in prints.

    Raises:
        AccessError: The plug-in is missing, fails, hangs, or prints no credentials.
    """
    config: dict[str, Any] = target.user["exec"]
    command = str(config.get("command") or "")
    place = f"{target.source}: user {target.user_name!r}: auth plug-in {command!r}"
    arguments = [command, *(str(argument) for argument in config.get("args") or ())]
    is_interactive = sys.stdin.isatty() and config.get("interactiveMode") != "Never"
    try:
        done = subprocess.run(
            arguments,
            env=_environment(target, config, is_interactive=is_interactive),
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if is_interactive else subprocess.PIPE,
            timeout=None if is_interactive else _TIMEOUT_SECONDS,
            check=False,
            text=True,
        )
    except FileNotFoundError:
        hint = install_hint(command, str(config.get("installHint") or ""))
        raise AccessError(f"{place} is not installed; {hint}") from None
    except (PermissionError, OSError) as error:
        raise AccessError(f"{place} cannot be started: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise AccessError(f"{place} gave no answer in {_TIMEOUT_SECONDS} s; run it by hand to see why") from None
    if done.returncode:
        words = (done.stderr or "").strip()
        raise AccessError(f"{place} ended with exit code {done.returncode}{': ' + words if words else ''}")
    return _read(done.stdout, place)


def _environment(target: Target, config: dict[str, Any], *, is_interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": is_interactive}
    if config.get("provideClusterInfo"):
        spec["cluster"] = {
            key: target.cluster[key]
            for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
            if key in target.cluster
        }
    info = {"apiVersion": config.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
    own = {str(item["name"]): str(item["value"]) for item in config.get("env") or ()}
    return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _read(text: str, place: str) -> Credentials:
    try:
        status = json.loads(text)["status"]
        token = str(status.get("token") or "")
        certificate, key = (str(status.get(name) or "") for name in ("clientCertificateData", "clientKeyData"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AccessError(f"{place} printed no ExecCredential with a status") from None
    if not token and not (certificate and key):
        raise AccessError(f"{place} printed neither a token nor a certificate with its key")
    expires = parse_time(status.get("expirationTimestamp"))
    return Credentials(token, certificate, key, expires)
