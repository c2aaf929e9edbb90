"""The next action follows from what is wanted and what is there, and from nothing else."""

from __future__ import annotations

import copy

from tests.cluster_ops.builders import make_jobset
from tpulaunch.cluster.objects import Object
from tpulaunch.cluster.reconcile import Apply, AwaitEnd, Delete, Desired, Done, Observed, Probe, Stop, decide


def wanted(**changes: int) -> Object:
    jobset = make_jobset(**changes)
    del jobset["status"]
    for key in ("uid", "creationTimestamp"):
        del jobset["metadata"][key]
    return jobset


def test_a_new_job_is_probed_before_it_is_stored() -> None:
    new = wanted()
    assert decide(Desired(new), Observed(None)) == Probe(new, is_new=True)
    assert decide(Desired(new), Observed(None, is_probed=True)) == Apply(new)


def test_a_new_job_waits_for_the_pods_of_its_predecessor() -> None:
    assert decide(Desired(wanted()), Observed(None, pods_left=2, is_probed=True)) == AwaitEnd("")


def test_what_is_as_wanted_is_left_alone() -> None:
    assert decide(Desired(wanted()), Observed(make_jobset(restarts=1))) == Done()


def test_an_object_of_others_is_never_touched_whatever_is_wanted() -> None:
    theirs = make_jobset()
    theirs["metadata"]["labels"] = {}
    for is_replacement in (False, True):
        assert decide(Desired(wanted(), is_replacement), Observed(theirs, is_probed=True)) == Stop("not-ours")


def test_a_job_on_its_way_out_is_waited_for() -> None:
    live = make_jobset()
    live["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert decide(Desired(wanted()), Observed(live)) == AwaitEnd("js-1")


def test_what_can_change_in_place_is_probed_then_applied() -> None:
    new = wanted()
    new["metadata"]["labels"]["team"] = "lm"
    assert decide(Desired(new), Observed(make_jobset())) == Probe(new, is_new=False)
    assert decide(Desired(new), Observed(make_jobset(), is_probed=True)) == Apply(new)


def test_what_cannot_change_in_place_stops_with_its_fields() -> None:
    action = decide(Desired(wanted(slices=3)), Observed(make_jobset()))
    assert isinstance(action, Stop)
    assert [(d.live, d.wanted) for d in action.differences] == [(2, 3)]


def test_a_replacement_is_probed_before_the_live_job_is_deleted_by_its_uid() -> None:
    new = wanted(slices=3)
    assert decide(Desired(new, is_replacement=True), Observed(make_jobset())) == Probe(new, is_new=True)
    assert decide(Desired(new, is_replacement=True), Observed(make_jobset(), is_probed=True)) == Delete("js-1")


def test_deciding_changes_nothing_it_was_given() -> None:
    desired, observed = Desired(wanted(slices=3)), Observed(make_jobset())
    before = copy.deepcopy((desired, observed))
    decide(desired, observed)
    assert (desired, observed) == before
