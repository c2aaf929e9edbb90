"""Whatever stands in a file, the answer is a job that can be rendered, or faults; never another exception."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.builders import job_document
from tests.launcher.builders import IMAGE
from tpulaunch.check import differences, wanted_object
from tpulaunch.plan import draft_plan
from tpulaunch.plan.make import with_lines
from tpuworker.errors import SpecError
from tpuworker.spec import load_job

FULL = job_document(
    metadata={"name": "tiny", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    worker={
        "image": IMAGE,
        "service_account": "a",
        "memory_gib": 8,
        "volumes": [{"name": "a", "mount_path": "/a", "gcsfuse": {"bucket": "abc", "file_cache_gib": 1}}],
    },
    data={"shuffle": {"seed": 1, "lanes": 64, "buffer_size": 10}, "on_bad_record": {"skip": {"limit": 1}}},
    train={"env": {"A": "b"}, "secrets": {"B": {"secret": "c", "key": "d"}}, "args": {"x": [1]}},
    checkpoint={"dir": "gs://a"},
    schedule={"capacity": "reservation", "reservation": {"name": "r"}, "queue": "q", "max_run_seconds": 60},
)

Path = tuple[Any, ...]


def paths(value: Any, path: Path = ()) -> list[Path]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inside for step, item in steps for inside in paths(item, (*path, step)))]


def replaced(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    altered = copy.deepcopy(document)
    place = altered
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return altered


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
        st.sampled_from(["v4", "tpu7x", "2x4", "2x2x1", "jax", "spot", "queued", "flex-start", "auto", "pack", 2**70]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def answer(text: str) -> None:
    with contextlib.suppress(SpecError):
        job = load_job(text, "job.yaml")
        plan, faults = draft_plan(job, text, login="somebody")
        with_lines(faults, text)
        assert list(differences(wanted_object(plan), wanted_object(plan))) == []


@given(st.text(max_size=200))
@example("? [a, b]\n: c\n")
@example("!!python/object:os.system {}\n")
@example("%YAML 9.9\n---\n{}\n")
@example("a: !!float x\nb: !!int 1_0x\nc: 0o9\n")
@example("\ufeffapiVersion: 1")
@settings(max_examples=100, deadline=None)
def test_any_text_is_answered(text: str) -> None:
    answer(text)


@given(st.sampled_from(paths(FULL)), VALUES)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_value_in_any_place_is_answered(path: Path, value: Any) -> None:
    answer(json.dumps(replaced(FULL, path, value)))


@given(st.sampled_from([path for path in paths(FULL) if path]), st.text(max_size=8), VALUES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_key_in_any_place_is_answered(path: Path, key: str, value: Any) -> None:
    answer(json.dumps(replaced(FULL, path, {key: value})))


def test_the_document_that_is_altered_is_good() -> None:
    job = load_job(json.dumps(FULL))
    assert draft_plan(job, json.dumps(FULL))[1] == ()
