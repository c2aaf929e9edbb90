"""What the server refuses is told field by field, in its own words, without dumps."""

from __future__ import annotations

import pytest

from tpulaunch.cluster.apply import refusals_of
from tpulaunch.cluster.errors import ApiStatus, Refusal


@pytest.mark.parametrize(
    ("status", "refusals"),
    [
        (
            ApiStatus(422, "Invalid", "dump", (("spec.replicas", "FieldValueInvalid", "must be greater than 0"),)),
            [Refusal("spec.replicas", "must be greater than 0")],
        ),
        (
            ApiStatus(
                403,
                "Forbidden",
                'admission webhook "vjobset.kb.io" denied the request: [spec.a: Invalid value: "x": too odd, '
                "spec.b[0]: Required value: say it]",
            ),
            [
                Refusal("spec.a", 'vjobset.kb.io: Invalid value: "x": too odd'),
                Refusal("spec.b[0]", "vjobset.kb.io: Required value: say it"),
            ],
        ),
        (
            ApiStatus(
                422, "", "spec.replicatedJobs: Invalid value: [" + "{Name:slice} " * 400 + "]: field is immutable"
            ),
            [Refusal("spec.replicatedJobs", "Invalid value: field is immutable")],
        ),
        (
            ApiStatus(
                500,
                "",
                "failed to create typed patch object (ml/x; JobSet): .spec.replicass: field not declared in schema",
            ),
            [Refusal("spec.replicass", "the server does not know this field")],
        ),
        (ApiStatus(403, "Forbidden", "exceeded quota: q"), [Refusal("", "exceeded quota: q")]),
    ],
)
def test_a_refusal_is_read(status: ApiStatus, refusals: list[Refusal]) -> None:
    assert list(refusals_of(status)) == refusals


def test_a_dump_does_not_reach_the_user_and_neither_does_a_secret() -> None:
    dump = 'admission webhook "w" denied the request: HF_TOKEN: hf_abcdefghijklmnop ' + "x" * 5000
    (refusal,) = refusals_of(ApiStatus(403, "Forbidden", dump))
    assert len(refusal.message) < 400
    assert "hf_" not in refusal.message
