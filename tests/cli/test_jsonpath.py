"""A template of kubectl's kind picks values out of what ``-o json`` prints."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tpulaunch.cli.jsonpath import read_template
from tpulaunch.errors import InputError

JOB = {
    "name": "tiny",
    "restarts": 2,
    "is_done": False,
    "cause": None,
    "labels": {"app.kubernetes.io/name": "tiny"},
    "hosts": [
        {"host": "0/0", "node": "a", "exit_code": 42},
        {"host": "0/1", "node": "b", "exit_code": None},
        {"host": "1/0", "node": "c", "exit_code": 1},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.name}", "tiny"),
        ("{$.name}", "tiny"),
        ("job {.name} has {.restarts}", "job tiny has 2"),
        ("{.is_done}", "false"),
        ("{.cause}{.nothing}{.cause.code}", ""),
        ("{.hosts[*].node}", "a b c"),
        ("{.hosts[0].host}", "0/0"),
        ("{.hosts[-1].host}{.hosts[-2].host}{.hosts[9].host}", "1/00/1"),
        ("{.hosts[0:2].node}", "a b"),
        ("{.labels['app.kubernetes.io/name']}", "tiny"),
        ("{.labels}", '{"app.kubernetes.io/name": "tiny"}'),
        ("{.hosts[?(@.exit_code==42)].host}", "0/0"),
        ('{.hosts[?(@.node!="a")].host}', "0/1 1/0"),
        ("{.hosts[?(@.host=='0/1')].node}", "b"),
        ('{range .hosts[*]}{.host}{"\\t"}{.node}{"\\n"}{end}', "0/0\ta\n0/1\tb\n1/0\tc\n"),
        ("{range .hosts[*]}{@.node}{end}", "abc"),
        ("{'{'}{.name}{'}'}", "{tiny}"),
    ],
)
def test_a_template_is_filled_as_kubectl_fills_it(template: str, text: str) -> None:
    assert read_template(template).fill(JOB) == text


def test_a_list_is_walked_from_its_root() -> None:
    assert read_template("{[*].name}").fill([JOB, JOB]) == "tiny tiny"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{.name", "not closed"),
        ("{range .hosts[*]}{.host}", "has no {end}"),
        ("{end}", "nothing is open"),
        ("{name}", "'name' is no step"),
        ("{.hosts[x]}", "'[x]' is no step"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place(template: str, words: str) -> None:
    with pytest.raises(InputError, match="jsonpath") as refused:
        read_template(template)
    assert words in str(refused.value)


@pytest.mark.parametrize(("flag", "words"), [("xml", "found no format"), ("jsonpath={.name", "not closed")])
@pytest.mark.parametrize("command", [("status", "tiny"), ("list",)])
def test_a_format_that_cannot_be_is_refused_before_a_cluster_is_asked(
    tpulaunch: Run, command: tuple[str, ...], flag: str, words: str
) -> None:
    ended = tpulaunch(*command, "-o", flag)
    assert (ended.code, ended.out, words in ended.err) == (2, "", True)
