"""Everything the launcher refuses, sorted by remedy; each class carries the exit code of the command that raised it.

    LauncherError            exit 1    something failed; the message says what
    ├── InputError           exit 2    a file or a flag: fix the call or the spec
    ├── NotFoundError        exit 3    no such object: look at the name and the namespace
    ├── ConflictError        exit 4    it exists and differs, or belongs to somebody else
    ├── WaitTimeoutError     exit 124  what was waited for did not happen in time
    ├── JobFailedError       exit 125  the launcher did its work, the job failed
    └── RenderError          exit 1    the manifest contradicts the plan: a bug of tpulaunch

Faults of the spec itself are :class:`tpuworker.errors.SpecError`, which ends with exit 2 as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_DIFFERS = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_CONFLICT = 4
EXIT_TIMEOUT = 124
EXIT_JOB_FAILED = 125
EXIT_INTERRUPTED = 130


class LauncherError(Exception):
    """Base of all refusals. ``str()`` is the whole message a person reads; there is no traceback to add."""

    exit_code: ClassVar[int] = EXIT_ERROR


class InputError(LauncherError):
    """A file or flag that cannot be used as given."""

    exit_code = EXIT_USAGE


class NotFoundError(LauncherError):
    """An object that is not there."""

    exit_code = EXIT_NOT_FOUND


class ConflictError(LauncherError):
    """An object that exists and may not be changed or is not ours."""

    exit_code = EXIT_CONFLICT


class WaitTimeoutError(LauncherError):
    """Waiting ended before what was waited for."""

    exit_code = EXIT_TIMEOUT


class JobFailedError(LauncherError):
    """The job ended in failure."""

    exit_code = EXIT_JOB_FAILED


@dataclass(frozen=True)
class Problem:
    """One difference between a manifest's text and the plan it was made from.

    Attributes:
        path: Place in the YAML, ``spec.replicatedJobs[0].replicas``.
        found: What the text says, quoted; "nothing" if it says nothing.
        wanted: What the plan says, quoted; "nothing" if the text adds it.
    """

    path: str
    found: str
    wanted: str

    def describe(self) -> str:
        """Return the difference as one line."""
        return f"{self.path}: found {self.found}; the plan says {self.wanted}"


class RenderError(LauncherError):
    """The rendered text does not say what the plan says; nothing may be sent."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [problem.describe() for problem in self.problems]
        super().__init__("\n".join(["the manifest contradicts its plan; please report this:", *lines]))
