"""Which tokenizer files an engine may be tried on at all: exact shapes of their nodes, everything else is refused.

An allow-list, since engines ignore fields they do not know: a file with a field that nobody thought of must not pass.
A shape is matched against parsed JSON: a dict matches a dict that has no other keys, a tuple means one of several,
:class:`Many` a list of any length, :data:`ANYTHING` whatever is there, and anything else itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

ANYTHING = object()


@dataclass(frozen=True)
class Many:
    """A list whose every item has a shape."""

    item: Any


_BOOLEAN = (True, False)
_UNSET = (None, "")
_BPE = {
    "type": ("BPE", None),
    "dropout": None,
    "unk_token": ANYTHING,
    "continuing_subword_prefix": _UNSET,
    "end_of_word_suffix": _UNSET,
    "fuse_unk": _BOOLEAN,
    "byte_fallback": _BOOLEAN,
    "ignore_merges": _BOOLEAN,
    "vocab": ANYTHING,
    "merges": ANYTHING,
}
_REGEX_SPLIT = {"type": "Split", "pattern": {"Regex": ANYTHING}, "behavior": "Isolated", "invert": False}
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": _BOOLEAN, "trim_offsets": _BOOLEAN, "use_regex": True}
_BYTES_ONLY = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": _BOOLEAN, "use_regex": False}
_SPLIT_THEN_BYTES = {"type": "Sequence", "pretokenizers": [_REGEX_SPLIT, _BYTES_ONLY]}
_SPACES_TO_MARKS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
_ADDED = {
    "id": ANYTHING,
    "content": ANYTHING,
    "single_word": _BOOLEAN,
    "lstrip": _BOOLEAN,
    "rstrip": _BOOLEAN,
    "normalized": _BOOLEAN,
    "special": _BOOLEAN,
}
_NOT_SINGLE_WORD = {**_ADDED, "single_word": False}


@dataclass(frozen=True)
class _Shape:
    """Nodes that go together."""

    normalizer: Any
    pre_tokenizer: Any
    model: Any
    added_tokens: Any


_FASTOKENS_SPLIT = {**_REGEX_SPLIT, "pattern": ({"Regex": ANYTHING}, {"String": ANYTHING}), "behavior": ANYTHING}
_FASTOKENS_NORMALIZER = ({"type": "NFC"}, {"type": "Lowercase"})
_ALLOWED: dict[str, tuple[_Shape, ...]] = {
    "fastokens": (
        _Shape(
            normalizer=(None, *_FASTOKENS_NORMALIZER, {"type": "Sequence", "normalizers": Many(_FASTOKENS_NORMALIZER)}),
            pre_tokenizer=(
                _BYTE_LEVEL,
                {
                    "type": "Sequence",
                    "pretokenizers": Many(
                        (
                            _FASTOKENS_SPLIT,
                            {"type": "Digits", "individual_digits": _BOOLEAN},
                            _BYTE_LEVEL,
                            _BYTES_ONLY,
                        )
                    ),
                },
            ),
            model=_BPE,
            added_tokens=Many(_ADDED),
        ),
        _Shape(_SPACES_TO_MARKS, None, {**_BPE, "byte_fallback": True}, Many(_ADDED)),
    ),
    # Ignores single_word, behavior, invert, use_regex, dropout, normalized on byte-level files, and whatever stands
    # beside a known regex.
    "gigatoken": (
        _Shape(None, (_BYTE_LEVEL, _SPLIT_THEN_BYTES), _BPE, Many(_NOT_SINGLE_WORD)),
        _Shape(
            {"type": "NFC"}, (_BYTE_LEVEL, _SPLIT_THEN_BYTES), _BPE, Many({**_NOT_SINGLE_WORD, "normalized": False})
        ),
        _Shape(_SPACES_TO_MARKS, None, {**_BPE, "byte_fallback": True}, Many(_NOT_SINGLE_WORD)),
        _Shape(
            None,
            {
                "type": "Metaspace",
                "replacement": "▁",
                "prepend_scheme": ("first", "always", "never"),
                "split": _BOOLEAN,
            },
            {**_BPE, "byte_fallback": True},
            Many(_NOT_SINGLE_WORD),
        ),
    ),
}


def refusal_of(engine: str, tokenizer_json: str) -> str | None:
    """Return why an engine must not be tried on a file, or None if it may.

    Args:
        engine: ``fastokens`` or ``gigatoken``.
        tokenizer_json: Text of the file.
    """
    content = json.loads(tokenizer_json)
    nodes = {name: content.get(name) for name in ("model", "pre_tokenizer", "normalizer", "added_tokens")}
    nodes["added_tokens"] = nodes["added_tokens"] or []
    shapes = _ALLOWED[engine]
    if any(all(matches(node, getattr(shape, name)) for name, node in nodes.items()) for shape in shapes):
        return None
    for name, node in nodes.items():
        if not any(matches(node, getattr(shape, name)) for shape in shapes):
            return f"its {name} ({_sketch(node)}) is none that {engine} is trusted with"
    kinds = ", ".join(f"{name} {_sketch(nodes[name])}" for name in ("normalizer", "pre_tokenizer"))
    return f"the combination of {kinds} is none that {engine} is trusted with"


def matches(node: Any, shape: Any) -> bool:
    """Say whether parsed JSON has a shape."""
    if shape is ANYTHING:
        return True
    if isinstance(shape, tuple):
        return any(matches(node, one) for one in shape)
    if isinstance(shape, Many):
        return isinstance(node, list) and all(matches(item, shape.item) for item in node)
    if isinstance(shape, dict):
        return isinstance(node, dict) and all(
            key in shape and matches(value, shape[key]) for key, value in node.items()
        )
    if isinstance(shape, list):
        return isinstance(node, list) and len(node) == len(shape) and all(map(matches, node, shape))
    return type(node) is type(shape) and bool(node == shape)


def _sketch(node: Any) -> str:
    """Name a node in a few words, without its vocabulary."""
    if isinstance(node, list):
        return f"{len(node)} entries"
    if not isinstance(node, dict):
        return str(node)
    inner = next((value for value in node.values() if isinstance(value, list) and len(value) < 20), [])
    small = {key: value for key, value in node.items() if not isinstance(value, dict | list) and key != "type"}
    parts = [_sketch(item) for item in inner] or [f"{key}={value}" for key, value in small.items() if value is not None]
    return f"{node.get('type', '?')}({', '.join(parts)[:160]})"
