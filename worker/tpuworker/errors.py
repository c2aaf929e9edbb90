"""Everything the worker refuses, sorted by who can cure it; each class carries the exit code its process ends with.

    WorkerError
    ├── SpecError        the document: fix the spec            exit 2
    ├── IdentityError    rank absent or contradictory          exit 2
    ├── DataError        a file, a column, a record            exit 1
    │   └── InputError   the spec names data that is not so    exit 2
    ├── TokenizerError   a tokenizer that cannot be trusted    exit 1
    ├── ShapeError       a batch that breaks the contract      exit 1
    ├── PreflightError   hosts disagree, or a recompilation    exit 3
    └── RetryError       the platform failed: restart counts   exit 42

The failure policy of the rendered JobSet restarts on 42 and on signals, and on nothing else from 1 to 127,
so a class belongs under RetryError exactly when running the same thing again can succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_SPEC = 2
EXIT_PREFLIGHT = 3
EXIT_RETRY = 42


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an input, complete enough to be mended without asking.

    Attributes:
        path: Dotted place in the document (``spec.slice.topology``), or the name of a file or variable.
        found: What stands there, in words or quoted.
        wanted: What would have been right.
        hint: What to do: the nearest valid value, or the next step. Empty if ``wanted`` says it all.
        line: One-based line in the document, if there is one.
        host: ``slice/host`` of the first host it was found on, where others are without it; empty otherwise.
    """

    path: str
    found: str
    wanted: str
    hint: str = ""
    line: int | None = None
    host: str = ""

    def describe(self, where: str = "") -> str:
        """Return the fault as one line: ``job.yaml:7: spec.slice.topology: found ...; wanted ...; hint``."""
        place = where if self.line is None else f"{where or 'line'}:{self.line}"
        head = f"{place}: {self.path}" if place else self.path
        tail = f"; {self.hint}" if self.hint else ""
        return f"{head}: found {self.found}; wanted {self.wanted}{tail}"


class WorkerError(Exception):
    """Base of all refusals. ``str()`` is the whole message a person reads; there is no traceback to add."""

    exit_code: ClassVar[int] = EXIT_ERROR

    @property
    def reason(self) -> str:
        """The class as one word, for logs and the termination message."""
        return type(self).__name__


class FaultsError(WorkerError):
    """A refusal that lists every fault of its input at once."""

    def __init__(self, faults: Sequence[Fault], where: str = "") -> None:
        self.faults = tuple(faults)
        self.where = where
        super().__init__("\n".join(fault.describe(where) for fault in self.faults))


class SpecError(FaultsError):
    """The document is not a valid job."""

    exit_code = EXIT_SPEC


class IdentityError(FaultsError):
    """The environment does not say, or contradicts, which host of which slice this is."""

    exit_code = EXIT_SPEC


class DataError(FaultsError):
    """The data cannot be read as the spec says."""


class InputError(DataError):
    """What the spec says of the data is not so: no such file, no such column, not that format, less than one batch."""

    exit_code = EXIT_SPEC


class TokenizerError(FaultsError):
    """The tokenizer is absent, or would make ids that nobody should train on."""


class ShapeError(FaultsError):
    """A batch differs from the shape contract."""


class PreflightError(FaultsError):
    """Hosts disagree, or a batch was compiled anew: nothing was trained."""

    exit_code = EXIT_PREFLIGHT

    @property
    def host(self) -> str:
        """``slice/host`` of the first host at fault; empty if all of them are."""
        return next((fault.host for fault in self.faults if fault.host), "")


class RetryError(WorkerError):
    """The platform failed under a healthy job; the same job started again can succeed."""

    exit_code = EXIT_RETRY
