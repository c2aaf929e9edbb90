"""From the text of one YAML document to a job, or to every fault in it with its line."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tpuworker.errors import Fault, SpecError
from tpuworker.spec.data import DataSpec
from tpuworker.spec.job import TPUJob
from tpuworker.spec.secret_values import find_secrets, looks_sensitive, secrets_in_lines

Path = tuple[str | int, ...]
_SURROGATE = re.compile("[\ud800-\udfff]")
#: A spec has some hundred values. Aliases of aliases (or of themselves) would make billions of a few lines.
_MOST_VALUES = 200_000
_DEEPEST_PATH = 60


@dataclass(frozen=True)
class Document:
    """A document as plain values, with the line of every path.

    Attributes:
        value: Mappings, lists and scalars.
        lines: One-based line of each path's key (or item).
        faults: What is wrong with the text itself: doubled keys, keys that are no words.
    """

    value: Any
    lines: dict[Path, int]
    faults: tuple[Fault, ...]

    def line_of(self, path: Path) -> int | None:
        """Return the line of a path, or of the nearest part of it that stands in the document."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def load_job(text: str, where: str = "") -> TPUJob:
    """Return the job a YAML text describes.

    Args:
        text: One YAML 1.2 document (``no`` is a word, not false).
        where: Name of the text for messages, usually the file.

    Raises:
        SpecError: Every fault of the text, each with path, line, found, wanted and a hint.
    """
    document = parse_document(text, where)
    faults = [*document.faults, *_secrets(document, text)]
    try:
        job = TPUJob.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        faults += _faults(document, error)
        raise SpecError(_in_order(faults), where) from None
    if faults:
        raise SpecError(_in_order(faults), where)
    return job


def load_data(values: Mapping[str, Any]) -> DataSpec:
    """Return the data section that plain values describe, for programs that have no document.

    Args:
        values: As JSON would have them under ``spec.data``.

    Raises:
        SpecError: Every fault, with its path (``spec.data.max_length``), found, wanted and a hint.
    """
    try:
        return DataSpec.model_validate_json(json.dumps(values))
    except ValidationError as error:
        document = Document({"spec": {"data": values}}, {}, ())
        raise SpecError(_in_order(_faults(document, error, ("spec", "data")))) from None


def parse_document(text: str, where: str = "") -> Document:
    """Return the values of a text that holds exactly one YAML document, as YAML 1.2 reads it.

    Raises:
        SpecError: The text is no YAML, is empty, or holds several documents.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        nodes = list(yaml.compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        fault = Fault("document", error.problem or "a syntax error", "YAML", error.note or "", line)
        raise SpecError([fault], where) from None
    except RecursionError:
        raise SpecError([Fault("document", "nesting without end", "a spec")], where) from None
    except Exception as error:  # the reader refuses control characters and bad encodings with classes of its own
        raise SpecError([Fault("document", str(error).splitlines()[0], "YAML text")], where) from None
    if len(nodes) != 1 or nodes[0] is None:
        found = "no document" if not any(nodes) else f"{len(nodes)} documents"
        hint = "tpulaunch init writes one to start from" if not any(nodes) else "put each job into a file of its own"
        raise SpecError([Fault("document", found, "one TPUJob document", hint)], where)
    lines: dict[Path, int] = {}
    faults: list[Fault] = []
    try:
        value = _Constructor(lines, faults).construct(nodes[0], ())
    except SpecError as error:
        raise SpecError(error.faults, where) from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else repr(value)
        raise SpecError([Fault("document", kind, "a mapping with apiVersion, kind, metadata and spec")], where)
    return Document(value, lines, tuple(faults))


def _secrets(document: Document, text: str) -> Iterable[Fault]:
    """Yield secrets written out in values, then those in comments, each with its line."""
    lines = set()
    for path, fault in find_secrets(document.value):
        lines.add(document.line_of(path))
        yield replace(fault, path=_dotted(path), line=document.line_of(path))
    for line, words in secrets_in_lines(text):
        if not lines & {line, line - 1}:
            yield Fault("document", words, "no secret, even in a comment: the whole text is sent", "remove it", line)


class _Constructor:
    """Makes plain values of nodes and notes lines and faults; aliases are followed, but never without end."""

    def __init__(self, lines: dict[Path, int], faults: list[Fault]) -> None:
        self._lines = lines
        self._faults = faults
        self._num_values = 0

    def construct(self, node: Node, path: Path) -> Any:
        self._num_values += 1
        line = node.start_mark.line + 1
        if self._num_values > _MOST_VALUES or len(path) > _DEEPEST_PATH:
            found = "aliases that repeat each other or themselves, or endless nesting"
            raise SpecError([Fault(_dotted(path[:4]), found, "a tree of values", "write the values out", line)])
        self._lines.setdefault(path, line)
        if isinstance(node, SequenceNode):
            return [self.construct(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        assert isinstance(node, ScalarNode)
        node.value = self._whole_characters(node.value, path, line)
        return _scalar(node)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._faults.append(
                    Fault(_dotted(path), "a key that is a list or mapping", "keys that are words", "", line)
                )
                continue
            key = self._whole_characters(key_node.value, path, line)
            place = (*path, key)
            if key in mapping:
                self._faults.append(Fault(_dotted(place), "the key a second time", "each key once", "remove one", line))
                continue
            self._lines[place] = line
            mapping[key] = self.construct(value_node, place)
        return mapping

    def _whole_characters(self, text: str, path: Path, line: int) -> str:
        """Return a text with surrogate pairs joined: JSON escapes some characters so, and a spec may be JSON."""
        if not _SURROGATE.search(text):
            return str(text)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            found = "half of a character (a lone surrogate)"
            self._faults.append(Fault(_dotted(path), found, "whole characters", "write the character itself", line))
            return "?"


def _scalar(node: ScalarNode) -> Any:
    """Return a scalar by YAML 1.2's core schema; dates and anything unusual stay the text the user wrote."""
    text = node.value
    match str(node.tag).rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _int(text)
        case "float":
            return _float(text)
    return text


def _int(text: str) -> int | str:
    try:
        return int(text.replace("_", ""), 0 if text.lstrip("+-").lower().startswith(("0x", "0o")) else 10)
    except ValueError:  # tagged by hand, or of more digits than Python converts
        return str(text)


def _float(text: str) -> float | str:
    try:
        number = float(text.replace("_", ""))
    except ValueError:  # tagged by hand, or one of YAML's words for infinity
        return str(text)
    return number if math.isfinite(number) else str(text)


def _faults(document: Document, error: ValidationError, inside: Path = ()) -> list[Fault]:
    found = _flatten(error.errors(include_url=False))
    errors = [ErrorDetails(**{**details, "loc": (*inside, *details["loc"])}) for details in found]
    faults = [_fault(document, details) for details in errors]
    parents = {fault.path.rpartition("[")[0] for fault in faults}
    # A list all of whose items are faulty is also reported as too short, which would only confuse.
    return [f for f, d in zip(faults, errors, strict=True) if d["type"] != "too_short" or f.path not in parents]


def _flatten(errors: Iterable[ErrorDetails]) -> Iterable[ErrorDetails]:
    for details in errors:
        several = details.get("ctx", {}).get("faults")
        if several:
            for context in several:
                yield ErrorDetails(**{**details, "type": "fault", "ctx": context})
        else:
            yield details


def _fault(document: Document, details: ErrorDetails) -> Fault:
    path = _real_path(document.value, details["loc"])
    context = details.get("ctx", {})
    kind = details["type"]
    if kind == "fault":
        if context["field"]:
            path = (*path, *context["field"].split(".")) if path else tuple(context["field"].split("."))
        return Fault(_dotted(path), context["found"], context["wanted"], context["hint"], document.line_of(path))
    line = document.line_of(path)
    if kind == "extra_forbidden":
        known = _known_keys(path[:-1])
        return Fault(
            _dotted(path),
            "an unknown key",
            "one of " + ", ".join(known),
            _did_you_mean(path[-1], known),
            line,
        )
    if kind == "missing":
        return Fault(_dotted(path), "nothing", "a value, since it has no default", "", line)
    if path and looks_sensitive(str(path[-1])):
        return Fault(_dotted(path), "a value that its name calls a secret", "text, and no secret", "", line)
    found = _shown(details.get("input"))
    if kind == "string_pattern_mismatch":
        return Fault(_dotted(path), found, f"text of the form {context['pattern']}", "", line)
    wanted = str(context.get("expected") or details["msg"].removeprefix("Input should be ").strip())
    return Fault(_dotted(path), found, wanted, _literal_hint(details, wanted), line)


def _literal_hint(details: ErrorDetails, wanted: str) -> str:
    given = details.get("input")
    if details["type"] == "literal_error" and isinstance(given, str):
        return _did_you_mean(given, [word.strip("' ") for word in wanted.replace(" or ", ",").split(",")])
    if details["type"] == "string_type" and isinstance(given, int | float | bool):
        return f'write it in quotes: "{json.dumps(given)}"'
    if details["type"] == "int_type" and isinstance(given, str) and given.isdecimal():
        return f"write it without quotes: {given}"
    return ""


def _did_you_mean(word: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else ""


def _known_keys(path: Path) -> list[str]:
    """Return the keys that the model at a path knows, read from the JSON Schema so that unions need no care."""
    schema = TPUJob.model_json_schema(by_alias=True)
    known: set[str] = set()
    places = [schema]
    for step in path:
        places = [found for place in places for found in _step(schema, place, step)]
    for place in places:
        for option in _options(schema, place):
            known |= option.get("properties", {}).keys()
    return sorted(known)


def _step(schema: dict[str, Any], place: dict[str, Any], step: str | int) -> Iterable[dict[str, Any]]:
    for option in _options(schema, place):
        if isinstance(step, int):
            yield option.get("items", {})
        elif step in option.get("properties", {}):
            yield option["properties"][step]


def _options(schema: dict[str, Any], place: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if "$ref" in place:
        place = schema["$defs"][place["$ref"].rpartition("/")[2]]
    nested = [*place.get("anyOf", ()), *place.get("oneOf", ())]
    if not nested:
        yield place
    for option in nested:
        yield from _options(schema, option)


def _real_path(value: Any, loc: Iterable[str | int]) -> Path:
    """Return an error's location without the tags of unions, which stand in no document."""
    steps = list(loc)
    path: list[str | int] = []
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        inside = _child(value, step)
        if inside is None and not (is_last and isinstance(value, dict)):
            continue
        value = inside[0] if inside else None
        path.append(step)
    return tuple(path)


def _child(value: Any, step: str | int) -> tuple[Any] | None:
    """Return the value one step inside, as a tuple of one since it may be null; None if there is no such step."""
    if isinstance(value, dict) and step in value:
        return (value[step],)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return (value[step],)
    return None


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".") or "document"


def _shown(value: object) -> str:
    if isinstance(value, BaseModel | dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: (fault.line is None, fault.line or 0, fault.path))
