"""JobPlan to manifest text, through a strict template that can print nothing undefined, nothing None, nothing raw."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import BaseLoader, Environment, StrictUndefined, Template

from tpulaunch.plan import JobPlan

#: Characters that YAML does not allow to stand for themselves, or takes for line ends, outside ASCII's controls.
_ESCAPED = {"\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff"}

_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
#: What YAML 1.1, which Kubernetes' reader still half follows, does not take for text.
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"})


class Scalar(str):
    """Text that is YAML already: what filters return, and the only thing a template may print."""

    __slots__ = ()


def render(plan: JobPlan) -> str:
    """Return the JobSet of a plan as one YAML document.

    The same plan gives the same text. :func:`tpulaunch.check.check` proves that the text says what the plan says.
    """
    return template("jobset.yaml.j2").render(plan=plan)


def scalar(value: object) -> Scalar:
    """Return a value as a YAML scalar on one line: strings in double quotes, so that none is taken for a number.

    Raises:
        TypeError: The value is None, undefined or no scalar: the plan lacks a decision.
    """
    if isinstance(value, str):
        return Scalar(_quoted(value))
    if isinstance(value, bool):
        return Scalar("true" if value else "false")
    if isinstance(value, int):
        return Scalar(str(value))
    raise TypeError(f"a template prints strings, integers and booleans only, not {value!r}")


def quantity(value: int) -> Scalar:
    """Return a number as Kubernetes writes a quantity: text."""
    return scalar(str(value))


def key(value: str) -> Scalar:
    """Return the key of a mapping, without quotes where no reader of YAML could take it for anything else."""
    is_plain = _PLAIN_KEY.fullmatch(value) and value.lower() not in _WORDS_OF_YAML
    return Scalar(value if is_plain else _quoted(value))


def text(value: str, indent: int) -> Scalar:
    """Return a longer text as a literal block, for the reader's sake, where that keeps every byte; else in quotes.

    Args:
        value: The text.
        indent: Column of the block's lines.
    """
    return Scalar(_block(value, indent) if _fits_a_block(value) else _quoted(value))


def _quoted(value: str) -> str:
    # JSON's escapes are YAML's, but for what JSON leaves as it is and YAML does not print. Surrogate pairs, which
    # JSON would make of emoji, mean something else in YAML: such characters stand for themselves.
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(_escape(c) if "\x7f" <= c <= "\x9f" or c in _ESCAPED or _is_surrogate(c) else c for c in quoted)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _fits_a_block(value: str) -> bool:
    body = value[:-1]
    return (
        value.endswith("\n")
        and body != ""
        and body[0] not in " \t\n"  # would need an indentation indicator
        and not body.endswith("\n")  # would need another chomping
        and not body.rpartition("\n")[2].isspace()
        and all(c in "\n\t" or c.isprintable() for c in body)
        and not any(c in _ESCAPED for c in body)
    )


def _block(value: str, indent: int) -> str:
    lines = value[:-1].split("\n")
    return "|\n" + "\n".join(" " * indent + line if line else "" for line in lines)


def _only_scalars(value: Any) -> Any:
    if not isinstance(value, Scalar):
        raise TypeError(f"a template may print what a filter made and nothing else, not {value!r}")
    return value


@cache
def template(name: str) -> Template:
    """Return a template of ``manifests/``, which refuses whatever is undefined, None or passed no filter."""
    environment = Environment(
        loader=BaseLoader(),
        undefined=StrictUndefined,
        finalize=_only_scalars,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(scalar=scalar, quantity=quantity, key=key, text=text)
    source = resources.files("tpulaunch").joinpath("manifests", name).read_text(encoding="utf-8")
    return environment.from_string(source)
