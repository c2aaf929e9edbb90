"""``-o jsonpath=TEMPLATE`` as kubectl has it: text, ``{.a.b[0]}``, ``[*]``, filters, ``{range ...}{end}``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tpulaunch.errors import InputError

Step = Callable[[Any], Iterator[Any]]

_STEP = re.compile(
    r"""\.(?P<key>[\w/-]+) | \.?\[ \s* (?:
        '(?P<quoted>[^']*)' | (?P<star>\*) | (?P<from>-?\d*):(?P<to>-?\d*) | (?P<index>-?\d+)
        | \?\( \s* @(?P<left>[^=!)\s]*) \s* (?:(?P<operator>==|!=) \s* (?P<right>"[^"]*"|'[^']*'|[\w.-]+) \s*)? \)
    ) \s* \] | \.(?P<all>\*)""",
    re.VERBOSE,
)
_PART = re.compile(r"[^{]+|\{(?:[^{}'\"]|'[^']*'|\"(?:[^\"\\]|\\.)*\")*\}")


@dataclass(frozen=True)
class Path:
    """Steps from a value to any number of values; a key that is not there leads to none, as with kubectl."""

    steps: tuple[Step, ...]

    def find(self, value: Any) -> list[Any]:
        """Return what the path leads to."""
        found = [value]
        for step in self.steps:
            found = [each for one in found for each in step(one)]
        return found


@dataclass(frozen=True)
class Loop:
    """``{range PATH}BODY{end}``."""

    path: Path
    body: tuple[str | Path | Loop, ...]


@dataclass(frozen=True)
class Template:
    """A template that has been read."""

    parts: tuple[str | Path | Loop, ...]

    def fill(self, value: Any) -> str:
        """Return the text for a value."""
        return "".join(_fill(part, value) for part in self.parts)


def read_template(text: str) -> Template:
    """Return the template a text means.

    Raises:
        InputError: It is none; the place that cannot be read is quoted.
    """
    if "".join(tokens := _PART.findall(text)) != text:
        raise _fault(text, "a brace or a quote is not closed")
    opened: list[tuple[Path, list[str | Path | Loop]]] = [(Path(()), [])]
    for token in tokens:
        inner = token[1:-1].strip() if token.startswith("{") else None
        if inner is None:
            opened[-1][1].append(token)
        elif inner == "end":
            if len(opened) == 1:
                raise _fault(token, "nothing is open that could end here")
            path, body = opened.pop()
            opened[-1][1].append(Loop(path, tuple(body)))
        elif inner.startswith("range "):
            opened.append((_path(inner.removeprefix("range ").strip()), []))
        elif inner[:1] in ("'", '"'):
            opened[-1][1].append(_literal(inner))
        else:
            opened[-1][1].append(_path(inner))
    if len(opened) > 1:
        raise _fault(text, "{range ...} has no {end}")
    return Template(tuple(opened[0][1]))


def _fill(part: str | Path | Loop, value: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Path):
        return " ".join(map(_shown, part.find(value)))
    return "".join(_fill(each, item) for item in part.path.find(value) for each in part.body)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _literal(quoted: str) -> str:
    if quoted[0] == "'":
        return quoted[1:-1]
    try:
        return str(json.loads(quoted))
    except ValueError:
        raise _fault(quoted, "this is no text in quotes") from None


def _path(text: str) -> Path:
    rest, steps = text.removeprefix("$").removeprefix("@"), []
    while rest and rest != ".":
        found = _STEP.match(rest)
        if not found:
            raise _fault(text, f"{rest!r} is no step; write .key, [0], [*] or [?(@.key=='value')]")
        steps.append(_step(found))
        rest = rest[found.end() :]
    return Path(tuple(steps))


def _step(found: re.Match[str]) -> Step:
    if (name := found["key"] or found["quoted"]) is not None:
        return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])
    if found["star"] or found["all"]:
        return lambda value: iter(value.values() if isinstance(value, dict) else _items(value))
    if found["index"]:
        index = int(found["index"])
        return lambda value: iter(_items(value)[index:][:1] if index != -1 else _items(value)[-1:])
    if found["from"] is not None:
        span = slice(*(int(bound) if bound else None for bound in (found["from"], found["to"])))
        return lambda value: iter(_items(value)[span])
    path, operator, right = _path(found["left"]), found["operator"], (found["right"] or "").strip("'\"")

    def keep(value: Any) -> Iterator[Any]:
        for item in _items(value):
            left = [_shown(each) for each in path.find(item)]
            if (
                (operator is None and left)
                or (operator == "==" and right in left)
                or (operator == "!=" and left and right not in left)
            ):
                yield item

    return keep


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fault(text: str, why: str) -> InputError:
    return InputError(f"-o jsonpath: {text!r}: {why}")
