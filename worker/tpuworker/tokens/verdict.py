"""The verdict on engines: what one host found, how hosts agree, and the file that remembers it."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, cast

from tpuworker.errors import Fault, TokenizerError
from tpuworker.tokens.engines import EngineName
from tpuworker.tokens.tokenizer import Tokenizer

#: Raised when the trials change, so that verdicts of older ones do not count.
PROTOCOL = 1

State = Literal["reference", "verified", "routed"]


class TokenizerMismatchError(TokenizerError):
    """An engine that was asked for by name makes other ids than the reference."""


@dataclass(frozen=True)
class Mismatch:
    """The smallest text found on which an engine differs.

    Attributes:
        text: At most 200 characters.
        wanted: Ids of the reference, at most 32.
        found: Ids of the engine, at most 32.
    """

    text: str
    wanted: tuple[int, ...]
    found: tuple[int, ...]

    def describe(self) -> str:
        """Return it in one line of ASCII."""
        return f"{self.text!a} gives {list(self.found)}, the reference gives {list(self.wanted)}"


@dataclass(frozen=True)
class Verdict:
    """Which engine may do the work, and on what proof.

    Attributes:
        engine: The one that does the work.
        version: Of its library.
        reference_version: Of ``tokenizers``.
        state: ``verified``: no difference was found; ``routed``: only single characters differ, and texts with them
            go to the reference; ``reference``: it does all the work.
        divergent: Runs of code points (first, last) that go to the reference.
        reasons: Why engines that would be faster do not do the work, one sentence each.
        file_fingerprint: sha256 of the tokenizer file.
        protocol: Version of the trials.
        num_trials: Texts that were compared on this host.
    """

    engine: EngineName
    version: str
    reference_version: str
    state: State
    divergent: tuple[tuple[int, int], ...] = ()
    reasons: tuple[str, ...] = ()
    file_fingerprint: str = ""
    protocol: int = PROTOCOL
    num_trials: int = 0

    @property
    def fingerprint(self) -> str:
        """What stands in a checkpoint's state: another engine on resume is a change to be asked about."""
        name = f"{self.engine} {self.version}"
        if self.engine == "reference":
            return name
        return f"{name} equal to reference {self.reference_version}"

    def describe(self) -> str:
        """Return a line for the preflight table: ``fastokens 0.3.5, equal on 12,345 texts``."""
        said = f"{self.engine} {self.version}"
        if self.state != "reference":
            said += f", equal to tokenizers {self.reference_version} on {self.num_trials:,} texts"
        if self.state == "routed":
            said += (
                f" but for {sum(last - first + 1 for first, last in self.divergent):,} characters, which it gets not"
            )
        return said

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """Return the verdict that :meth:`to_json` wrote.

        Raises:
            ValueError: It is none.
        """
        fields = json.loads(text)
        try:
            fields["divergent"] = tuple((first, last) for first, last in fields["divergent"])
            fields["reasons"] = tuple(fields["reasons"])
            return cls(**fields)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a verdict: {error}") from error


def reference_verdict(tokenizer: Tokenizer, reasons: Sequence[str] = ()) -> Verdict:
    """Return the verdict that needs no proof."""
    found = version("tokenizers")
    return Verdict("reference", found, found, "reference", (), tuple(reasons), tokenizer.file_fingerprint)


def join(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the one verdict that all hosts use: the weakest wins, and what one host routes all do.

    Hosts whose processors or versions led to different engines all take the reference.

    Args:
        verdicts: One per host, in rank order. Equal on all hosts, hence the same result on all of them.

    Raises:
        TokenizerError: The hosts do not even have the same tokenizer, or not the same reference.
    """
    first = verdicts[0]
    for name in ("file_fingerprint", "reference_version"):
        found = [str(getattr(verdict, name)) for verdict in verdicts]
        if len(set(found)) > 1:
            other = next(host for host, value in enumerate(found) if value != found[0])
            raise TokenizerError(
                [
                    Fault(
                        path="tokenizer" if name == "file_fingerprint" else "version of tokenizers",
                        found=f"{found[0][:16]} on host 0, {found[other][:16]} on host {other}",
                        wanted="the same on all hosts",
                        hint="pin spec.data.tokenizer.revision, and one image for all",
                    )
                ]
            )
    reasons = tuple(dict.fromkeys(reason for verdict in verdicts for reason in verdict.reasons))
    engines = {(verdict.engine, verdict.version) for verdict in verdicts}
    if len(engines) > 1:
        names = ", ".join(sorted(f"{name} {number}" for name, number in engines))
        return Verdict(
            "reference",
            first.reference_version,
            first.reference_version,
            "reference",
            reasons=(*reasons, f"hosts came to different engines: {names}"),
            file_fingerprint=first.file_fingerprint,
        )
    divergent = merge_runs([run for verdict in verdicts for run in verdict.divergent])
    return replace(
        first,
        state="routed" if divergent else first.state,
        divergent=divergent,
        reasons=reasons,
        num_trials=sum(verdict.num_trials for verdict in verdicts),
    )


def merge_runs(runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return runs (first, last) in order, those that touch or overlap as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


@dataclass(frozen=True)
class VerdictFile:
    """What was found about one engine and one tokenizer file on this kind of processor.

    Attributes:
        path: The file. Its name is a hash of everything the finding depends on.
    """

    path: Path

    @classmethod
    def of(cls, directory: Path, tokenizer: Tokenizer, engine: EngineName) -> VerdictFile:
        """Return the file for an engine, whether it exists or not."""
        try:
            engine_version = version(engine)
        except PackageNotFoundError:
            engine_version = "none"
        decides = [PROTOCOL, tokenizer.file_fingerprint, engine, engine_version, version("tokenizers"), *_processor()]
        name = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:32]
        return cls(directory / f"{engine}-{name}.json")

    def read(self) -> tuple[tuple[int, int], ...] | None:
        """Return the divergent runs of an engine that passed, or None if nothing is known."""
        try:
            runs = json.loads(self.path.read_text(encoding="ascii"))["divergent"]
            return tuple((int(first), int(last)) for first, last in runs)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # absent, or half a file of a full disk: the trials are run again

    def write(self, divergent: Sequence[tuple[int, int]]) -> None:
        """Remember that an engine passed. A directory that cannot be written to costs the trials again, no more."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".verdict-")
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump({"divergent": list(divergent)}, file)
            Path(temporary).replace(self.path)
        except OSError:
            return


def _processor() -> tuple[str, str]:
    """Model and flags: engines choose their instructions by them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return (
        cast(Any, found).get("model name", os.uname().machine),
        found.get("flags", found.get("Features", "")),
    )
