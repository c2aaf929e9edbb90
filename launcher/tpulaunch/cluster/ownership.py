"""Who owns which field of a live object, read from ``metadata.managedFields``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tpulaunch.cluster.objects import MANAGER, Object, dig

#: One step of a path: a field's name, an index, or the keys that pick an item of a list.
Step = str | int | tuple[tuple[str, Any], ...]
FieldPath = tuple[Step, ...]


def format_path(path: FieldPath) -> str:
    """Return a path as people write it: ``spec.replicatedJobs[name=slice].replicas``."""
    text = ""
    for step in path:
        if isinstance(step, tuple):
            text += "[" + ",".join(f"{key}={value}" for key, value in step) + "]"
        elif isinstance(step, int):
            text += f"[{step}]"
        elif all(c.isalnum() or c in "_-" for c in step):
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text


def applied_fields(live: Object, manager: str = MANAGER) -> Mapping[str, Any]:
    """Return the fields that a manager's last apply set, as the tree of ``fieldsV1``."""
    for entry in dig(live, "metadata", "managedFields", default=[]):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return fields
    return {}


def owners_of(live: Object, path: FieldPath) -> tuple[str, ...]:
    """Return the managers other than ours that own a field, or anything in it."""
    entries = dig(live, "metadata", "managedFields", default=[])
    found = {
        str(entry.get("manager"))
        for entry in entries
        if entry.get("manager") != MANAGER and _reaches(entry.get("fieldsV1") or {}, path)
    }
    return tuple(sorted(found))


def _reaches(fields: Mapping[str, Any], path: FieldPath) -> bool:
    if not path:
        return True
    return any(_is_step(key, path[0]) and (not inner or _reaches(inner, path[1:])) for key, inner in fields.items())


def _is_step(key: str, step: Step) -> bool:
    kind, _, value = key.partition(":")
    if isinstance(step, tuple):
        return kind == "k" and dict(step).items() <= json.loads(value).items()
    return kind == ("i" if isinstance(step, int) else "f") and value == str(step)


def removed_fields(fields: Mapping[str, Any], live: Any, wanted: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the fields that we own, that are live, and that are no longer wanted; the outermost of each."""
    for key, inner in fields.items():
        kind, _, value = key.partition(":")
        if kind == "f":
            step: Step = value
            is_live = isinstance(live, dict) and value in live
            live_part = live[value] if is_live else None
            is_wanted = isinstance(wanted, dict) and value in wanted
            wanted_part = wanted[value] if is_wanted else None
        elif kind == "k":
            keys = json.loads(value)
            live_part, wanted_part = item_with(live, keys), item_with(wanted, keys)
            is_live, is_wanted = live_part is not None, wanted_part is not None
            step = short_keys(live_part or keys, keys)
        else:
            continue
        if is_live and not is_wanted:
            yield (*path, step)
        elif is_live and inner:
            yield from removed_fields(inner, live_part, wanted_part, (*path, step))


def item_with(items: Any, keys: Mapping[str, Any]) -> Any:
    """Return the item of a list that has these keys; a key that the item leaves to its default matches."""
    if not isinstance(items, list):
        return None
    for item in items:
        present = {key: item[key] for key in keys if key in item} if isinstance(item, dict) else {}
        if present and all(keys[key] == value for key, value in present.items()):
            return item
    return None


def short_keys(item: Mapping[str, Any], keys: Mapping[str, Any]) -> Step:
    """Return the step that names an item of a list: its name where it has one, else its keys."""
    return (("name", item["name"]),) if "name" in item else tuple(sorted(keys.items()))
