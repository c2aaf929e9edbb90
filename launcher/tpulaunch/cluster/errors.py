"""What a cluster refuses, beside the launcher's own classes; each carries the exit code the command ends with.

    LauncherError
    ├── AccessError        kubeconfig, auth plug-in, certificate, rights                 exit 1
    ├── UnreachableError   no answer in time                                             exit 1
    ├── ApiError           any other refused request, with the server's Status           exit 1
    └── InputError
        └── RefusedError   the API server or an admission webhook refuses the object     exit 2

What is absent is a NotFoundError (3); what is somebody else's, or cannot be changed, a ConflictError (4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpulaunch.errors import InputError, LauncherError


class AccessError(LauncherError):
    """The way to the cluster is wrong: kubeconfig, auth plug-in, certificates, rights."""


class UnreachableError(LauncherError):
    """The server gave no answer in time, or the connection broke before the end of it."""

    def __init__(self, message: str, *, is_broken_connection: bool = False) -> None:
        self.is_broken_connection = is_broken_connection
        super().__init__(message)


@dataclass(frozen=True)
class Refusal:
    """One field that the server does not take.

    Attributes:
        field: Dotted path in the object, or empty if the server named none.
        message: The server's words, without the dump of values around them.
    """

    field: str
    message: str

    def describe(self) -> str:
        """Return the refusal as one line."""
        return f"{self.field}: {self.message}" if self.field else self.message


class RefusedError(InputError):
    """The object is not acceptable to the server, field by field."""

    def __init__(self, what: str, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("\n".join([what, *(f"  {refusal.describe()}" for refusal in self.refusals)]))


@dataclass(frozen=True)
class ApiStatus:
    """The Status object of a failed request.

    Attributes:
        code: HTTP status.
        reason: Kubernetes' word for it: NotFound, AlreadyExists, Conflict, Invalid, Forbidden, ...
        message: The server's words.
        causes: (field, reason, message) of each single fault.
        retry_after_seconds: When the server wants to be asked again; 0 if it does not say.
    """

    code: int
    reason: str
    message: str
    causes: tuple[tuple[str, str, str], ...] = ()
    retry_after_seconds: int = 0

    @classmethod
    def read(cls, code: int, body: Any) -> ApiStatus:
        """Return the status a response's body describes, be it a Status object or plain words."""
        if not isinstance(body, dict) or body.get("kind") != "Status":
            words = body if isinstance(body, str) else ""
            return cls(code, "", words.strip() or f"HTTP {code}")
        details = body.get("details") or {}
        causes = tuple(
            (str(c.get("field") or ""), str(c.get("reason") or ""), str(c.get("message") or ""))
            for c in details.get("causes") or ()
        )
        return cls(
            code,
            str(body.get("reason") or ""),
            str(body.get("message") or f"HTTP {code}"),
            causes,
            int(details.get("retryAfterSeconds") or 0),
        )


class ApiError(LauncherError):
    """A request failed; the callers that know what was wanted turn it into one of the classes above."""

    def __init__(self, status: ApiStatus, what: str = "") -> None:
        self.status = status
        super().__init__(f"{what}: {status.message}" if what else status.message)
