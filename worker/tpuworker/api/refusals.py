"""Refusals in the words of a function call: places of the spec become names of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

from tpuworker.errors import Fault, FaultsError, SpecError

#: Longest first: the first that a fault's path begins with is replaced.
_ARGUMENTS = {
    "spec.data.tokenizer.path": "tokenizer",
    "spec.data.tokenizer.engine": "engine",
    "spec.data.tokenizer": "tokenizer",
    "spec.data.sources[0].hub": "name",
    "spec.data.sources[0].tfds": "name",
    "spec.data.sources[0].split": "split",
    "spec.data.sources[0]": "dataset",
    "spec.data.sources": "dataset",
    "spec.data.global_batch_size": "batch_size",
    "spec.data.shuffle": "shuffle",
    "spec.data": "",
    "spec.slice": "world_size",
}

#: A hint that tells of these is about taking part of a split, which a caller does otherwise.
_WORDS_OF_THE_SPEC = ("data.filter", "train.steps")
_PART_HINT = "hand over datasets.load_dataset(name, split='train[:10%]') for a part of a split"


@contextmanager
def in_arguments() -> Iterator[None]:
    """Say what the engine refuses inside as faults of arguments, with the same class."""
    try:
        yield
    except FaultsError as error:
        faults = [
            replace(fault, path=argument_of(fault.path), hint=_in_calls(fault.hint), line=None)
            for fault in error.faults
        ]
        raise type(error)(faults, error.where) from error


def argument_of(path: str) -> str:
    """Return the argument that a place of the spec stands for: ``spec.data.max_length`` is ``max_length``."""
    for place, argument in _ARGUMENTS.items():
        if path == place or path.startswith((f"{place}.", f"{place}[")):
            return (argument + path[len(place) :]).lstrip(".") or path
    return path


def refuse(argument: str, found: str, wanted: str, hint: str = "") -> NoReturn:
    """Raise SpecError for one argument."""
    raise SpecError([Fault(argument, found, wanted, hint)])


def _in_calls(hint: str) -> str:
    if any(word in hint for word in _WORDS_OF_THE_SPEC):
        return _PART_HINT
    return hint.replace("spec.data.", "")
