"""What all hosts must have in common, and which host differs in what."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from tpuworker.errors import Fault

#: Libraries that decide what a row, a token or a program is.
_DECIDING = ("tpulaunch", "numpy", "pyarrow", "datasets", "tokenizers", "transformers", "fastokens", "gigatoken")
_SHOWN = 60


def own_facts(spec_text: str, modules: Iterable[ModuleType], files: Iterable[Path] = ()) -> dict[str, str]:
    """Return the facts about code and interpreter that need no device and no data.

    Args:
        spec_text: The document.
        modules: Loaded modules; those outside the standard library and installed packages are the user's own code.
        files: Further files that are code, such as the script of ``train.command``.
    """
    facts = {
        "spec": _digest([spec_text.encode()]),
        "code of tpuworker": _digest(path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py"))),
        "python": platform.python_version(),
    }
    own = sorted({*users_files(modules), *(path for path in files if path.is_file())})
    facts["your code"] = _digest(path.read_bytes() for path in own) if own else "none"
    for name in _DECIDING:
        try:
            facts[f"version of {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[f"version of {name}"] = "not installed"
    return facts


def users_files(modules: Iterable[ModuleType]) -> set[Path]:
    """Return the source files of modules that are neither the interpreter's, nor installed, nor this package's."""
    roots = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {Path(sys.prefix).resolve(), Path(__file__).resolve().parents[1]}
    files = set()
    for module in modules:
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith(".py"):
            continue
        path = Path(name).resolve()
        if path.is_file() and not any(path.is_relative_to(root) for root in roots):
            files.add(path)
    return files


def disagreements(facts_of_hosts: Sequence[Mapping[str, str]], labels: Sequence[str]) -> list[Fault]:
    """Return one fault for each fact in which hosts differ, naming the hosts in the minority and their values.

    Args:
        facts_of_hosts: Facts of every host, by rank.
        labels: ``slice/host`` of every host, by rank.
    """
    faults = []
    for name in dict.fromkeys(name for facts in facts_of_hosts for name in facts):
        values = [facts.get(name, "nothing") for facts in facts_of_hosts]
        ranked = Counter(values).most_common()
        if len(ranked) == 1:
            continue
        # Of two equally common values the first host's is taken for the right one.
        most = ranked[0][1]
        usual = next(value for value in values if Counter(values)[value] == most)
        others = [f"{value[:_SHOWN]!r} on host {label}" for value, label in zip(values, labels, strict=True)]
        differing = [other for other, value in zip(others, values, strict=True) if value != usual]
        more = f" and {len(differing) - 4} more hosts" if len(differing) > 4 else ""
        faults.append(
            Fault(
                name,
                ", ".join(differing[:4]) + more,
                f"{usual[:_SHOWN]!r}, as on {most} other host{'s' if most > 1 else ''}",
                _remedy(name),
                host=next(label for label, value in zip(labels, values, strict=True) if value != usual),
            )
        )
    return faults


def _remedy(name: str) -> str:
    if name.startswith(("version", "python", "code", "your code")):
        return "pin the image by digest, so that all hosts run the same bytes"
    if name.startswith("file "):
        return "copy the data anew to that host, or read it from one place that all hosts share"
    if name.startswith(("source", "files")):
        return "the files changed while the hosts started, or hosts see different mounts"
    if name.startswith(("tokenizer", "chat")):
        return "pin spec.data.tokenizer.revision"
    return "all hosts must run the same job"


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def to_bytes(facts: Mapping[str, str]) -> bytes:
    """Return facts as bytes for the other hosts."""
    return json.dumps(dict(facts)).encode()


def from_bytes(payload: bytes) -> dict[str, str]:
    """Return the facts that :func:`to_bytes` wrote."""
    return {str(name): str(value) for name, value in json.loads(payload).items()}
