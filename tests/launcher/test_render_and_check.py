"""Whatever a user writes arrives byte for byte, and nothing leaves that the plan does not say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from ruamel.yaml import YAML

from tests.builders import job_document
from tests.launcher.builders import IMAGE, plan_of
from tpulaunch.check import check, differences, wanted_object
from tpulaunch.errors import Problem
from tpulaunch.plan import make_plan
from tpulaunch.plan.environment import without_expansion
from tpulaunch.plan.values import JobPlan, Literally
from tpulaunch.render import key, quantity, render, scalar, template, text
from tpuworker.spec import load_job

#: Any text but halves of characters, which are no text.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
#: What went wrong in other launchers: quotes, backslashes, line ends, comment signs, template and YAML syntax.
HOSTILE = (
    '{"a": "b"}',
    r"P=C:\temp\new",
    "python3 train.py # note",
    "a\nb\r\nc\n\n",
    "{{ plan.name }} {% if %} {# #}",
    "no",
    "0123",
    "1e3",
    "~",
    "null",
    "",
    " leading and trailing ",
    "- item",
    "key: value",
    "'single' and \"double\"",
    "&anchor *alias !tag |block >folded %percent @at `tick",
    "tab\there",
    "\u2028\u2029\x85\ufeff",
    "emoji 🚀 and 李 and é",
    "\x1b[31mred\x1b[0m\x07",
    "---\n...\n---",
    "=\\=\\\\",
)


def read_with_two_libraries(document: str) -> list[Any]:
    """Return a document as YAML 1.2 (ruamel) and as YAML 1.1 (PyYAML) read it."""
    return [YAML(typ="safe", pure=True).load(document), yaml.safe_load(document)]


def expanded(value: str) -> str:
    """Return what the kubelet makes of a value when no variable is defined: only ``$$`` means something then."""
    return re.sub(r"\$\$", "$", value)


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_any_text_survives_as_a_scalar(value: str) -> None:
    for read in read_with_two_libraries(f"x: {scalar(value)}\n"):
        assert read == {"x": value}


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_text_survives_as_a_scalar(value: str) -> None:
    for read in read_with_two_libraries(f"x: {scalar(value)}\n"):
        assert read == {"x": value}


@given(
    st.lists(st.one_of(st.sampled_from(["", " ", "\t", "a", "  b: c", "# d", "\r", "\x85", "é"]), TEXTS)).map("\n".join)
)
@example("a\n")
@example("\na\n")
@example(" a\n")
@example("a\n\n")
@example("a\n  ")
@settings(max_examples=100, deadline=None)
def test_any_text_survives_as_a_block(value: str) -> None:
    for read in read_with_two_libraries(f"x:\n  y: {text(value, 4)}\nz: 1\n"):
        assert read == {"x": {"y": value}, "z": 1}


def test_a_plain_spec_is_shown_as_lines() -> None:
    assert text("a: 1\nb: 2\n", 4) == "|\n    a: 1\n    b: 2"


@given(
    st.one_of(
        st.from_regex(r"\A[A-Za-z][A-Za-z0-9_./-]*\Z"), st.sampled_from(["yes", "No", "on", "null", "y", "True", "NaN"])
    )
)
@settings(max_examples=100, deadline=None)
def test_any_key_survives(name: str) -> None:
    for read in read_with_two_libraries(f"{key(name)}: 1\n"):
        assert read == {name: 1}


@given(st.dictionaries(st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,10}\Z").map("V_{}".format), TEXTS, max_size=4), TEXTS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_job_arrives_byte_for_byte(env: dict[str, str], note: str) -> None:
    document = job_document(
        worker={"image": IMAGE},
        train={
            "entrypoint": None,
            "command": ["sh", "-c", note.replace("\0", "") or "x"],
            "env": env_without_zero(env),
        },
        metadata={"name": "tiny", "annotations": {"example.com/note": note}},
    )
    spec_text = json.dumps(document, ensure_ascii=True)
    plan = make_plan(load_job(spec_text), spec_text)
    rendered = render(plan)
    assert check(rendered, plan) == []
    for read in read_with_two_libraries(rendered):
        template = read["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        assert template["metadata"]["annotations"]["tpulaunch.dev/spec"] == spec_text
        assert read["metadata"]["annotations"]["example.com/note"] == note
        values = {v["name"]: v.get("value") for v in template["spec"]["containers"][0]["env"]}
        assert {name: expanded(values[name]) for name in env} == env_without_zero(env)


def env_without_zero(env: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("\0", "") for name, value in env.items()}


@given(st.text("$()ABC ").filter(bool))
def test_the_kubelets_expansion_gives_the_users_text_back(value: str) -> None:
    assert expanded(without_expansion(value)) == value
    assert "$(" not in without_expansion(value).replace("$$", "")


@pytest.mark.parametrize("value", [None, 1.5, ["a"], {"a": 1}])
def test_a_template_cannot_print_what_is_no_scalar(value: object) -> None:
    with pytest.raises(TypeError, match="strings, integers and booleans only"):
        scalar(value)


@pytest.mark.parametrize("source", ["{{ plan.name }}", "{{ 1 }}", "{{ none }}"])
def test_a_template_cannot_print_what_no_filter_made(source: str) -> None:
    with pytest.raises(TypeError, match="what a filter made"):
        template("jobset.yaml.j2").environment.from_string(source).render(plan=plan_of())


def test_a_template_cannot_use_what_the_plan_does_not_decide() -> None:
    for source in ("{{ plan.no_such_field | scalar }}", "{% for x in plan.no_such_field %}{% endfor %}"):
        with pytest.raises((UndefinedError, TypeError)):
            template("jobset.yaml.j2").environment.from_string(source).render(plan=plan_of())


def test_numbers_are_numbers_and_quantities_are_text() -> None:
    assert (scalar(8), scalar(True), quantity(8)) == ("8", "true", '"8"')


FULL: dict[str, Any] = {
    "metadata": {"name": "tiny", "namespace": "ml", "labels": {"team": "lm"}, "annotations": {"a/b": "c"}},
    "worker": {
        "service_account": "trainer",
        "image_pull_secrets": ["registry"],
        "host_network": True,
        "volumes": [
            {"name": "a", "mount_path": "/a", "gcsfuse": {"bucket": "bucket", "file_cache_gib": 4}},
            {"name": "b", "mount_path": "/b", "read_only": True, "pvc": {"claim": "claim"}},
            {"name": "c", "mount_path": "/c", "scratch": {"scratch_gib": 1, "medium": "memory"}},
        ],
    },
    "train": {"entrypoint": "trainer.main", "env": {"A": "b"}, "secrets": {"C": {"secret": "d", "key": "e"}}},
    "schedule": {"queue": "q", "priority": "p", "capacity": "spot", "priority_class": "pc", "max_run_seconds": 3600},
}


@pytest.mark.parametrize(
    "sections",
    [{}, FULL, {"worker": {"privileged": True, "user": 0, "read_only_root": False}}, {"slice": {"topology": "2x2"}}],
)
def test_what_is_rendered_says_what_the_plan_says(sections: dict[str, Any]) -> None:
    plan = plan_of(**sections)
    assert check(render(plan), plan) == []


def test_the_same_plan_gives_the_same_text() -> None:
    assert render(plan_of(**FULL)) == render(plan_of(**FULL))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all scalars of a tree."""
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in leaves(item, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def test_every_single_value_is_held_against_the_plan() -> None:
    plan = plan_of(**FULL)
    for path in leaves(wanted_object(plan)):
        altered = json.loads(json.dumps(wanted_object(plan)))
        place = altered
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = "altered"
        (problem,) = differences(altered, wanted_object(plan))
        assert problem.found == '"altered"'


def test_what_is_missing_and_what_is_added_are_problems_with_their_place() -> None:
    plan = plan_of()
    altered = wanted_object(plan)
    del altered["spec"]["replicatedJobs"][0]["replicas"]
    altered["metadata"]["labels"]["x/y"] = "z"
    altered["spec"]["replicatedJobs"].append({})
    assert check(json.dumps(altered), plan) == [
        Problem('metadata.labels["x/y"]', '"z"', "nothing"),
        Problem("spec.replicatedJobs[0].replicas", "nothing", "1"),
        Problem("spec.replicatedJobs[1]", "{}", "nothing"),
    ]


def test_a_number_is_not_its_text_and_true_is_not_one() -> None:
    plan = plan_of()
    manifest = render(plan)
    assert check(manifest.replace("replicas: 1", 'replicas: "1"'), plan)
    assert check(manifest.replace("replicas: 1", "replicas: true"), plan)


@pytest.mark.parametrize("manifest", ["", "a: [", "---\na: 1\n---\nb: 1\n"])
def test_a_text_that_is_not_one_document_is_a_problem(manifest: str) -> None:
    assert check(manifest, plan_of())


def test_a_plan_that_lacks_a_decision_is_not_rendered() -> None:
    plan = plan_of()
    container = replace(plan.container, env=(Literally("A", None),))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        render(JobPlan(**{**vars(plan), "container": container}))
