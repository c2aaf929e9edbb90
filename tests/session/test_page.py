"""The page about a run: well-formed, complete, and safe whatever the names in it."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from tpuworker.report.page import page

FACTS = [("verdict", "PASSED"), ("steps", "50 on every host")]


def progress(step: int, **values: object) -> dict[str, object]:
    stages = {"read": {"rows": 10, "busy_seconds": 1.5}, "tokenise": {"rows": 10, "busy_seconds": 3.0}}
    return {"step": step, "loss": 3.0 / step, "queue_fill": 0.5, "stages": stages} | values


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)


def tags_of(text: str) -> list[str]:
    parser = Tags()
    parser.feed(text)
    return parser.names


def test_every_curve_that_has_points_is_drawn_and_every_stage_listed() -> None:
    text = page("tiny", FACTS, [progress(1), progress(10, tokens_per_second=900.0)], "all 50 steps done")
    assert tags_of(text).count("polyline") == 3
    assert "all 50 steps done" in text
    assert "tokenise" in text
    assert "50 on every host" in text


def test_a_run_without_a_step_has_a_page_too() -> None:
    assert "polyline" not in tags_of(page("tiny", FACTS, [], "preflight refused"))


@given(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=5))
def test_names_and_numbers_of_users_cannot_break_the_page(name: str, losses: list[float]) -> None:
    usual = tags_of(page("tiny", FACTS, [progress(at + 1, loss=1.0) for at in range(len(losses))], "x"))
    lines = [progress(at + 1, loss=loss) for at, loss in enumerate(losses)]
    tags = tags_of(page(f"<script>{name}", [(name, f"<b>{name}"), FACTS[1]], lines, f"</p><img>{name}"))
    assert "script" not in tags
    assert "img" not in tags
    assert [tag for tag in tags if tag not in ("line", "text")] == [tag for tag in usual if tag not in ("line", "text")]
