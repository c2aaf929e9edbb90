"""What to do next so that the cluster holds what is wanted: a pure decision, asked again after each action.

It is level-triggered: it looks at what is, never at what was done before, so the same function serves one ``submit``
and a controller that runs for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tpulaunch.cluster.diff import Difference, adopt, differences
from tpulaunch.cluster.objects import Object, is_deleting, is_ours, uid_of


@dataclass(frozen=True)
class Desired:
    """What is wanted.

    Attributes:
        jobset: The object to hold, as rendered.
        is_replacement: Whether a live object (any but ``replaced_by``) is to go first, whatever it looks like.
    """

    jobset: Object
    is_replacement: bool = False


@dataclass(frozen=True)
class Observed:
    """What is there.

    Attributes:
        live: The object of that name, or None.
        pods_left: Pods of a deleted predecessor that have not ended yet.
        is_probed: Whether the server has taken the wanted object in a dry run.
    """

    live: Object | None
    pods_left: int = 0
    is_probed: bool = False


@dataclass(frozen=True)
class Probe:
    """Ask the server to take the object, without storing it; ``is_new``: as if nothing of that name were there."""

    obj: Object
    is_new: bool


@dataclass(frozen=True)
class Apply:
    """Store the object."""

    obj: Object


@dataclass(frozen=True)
class Delete:
    """Delete the object with this UID, and no other of its name."""

    uid: str


@dataclass(frozen=True)
class AwaitEnd:
    """Wait until the object with this UID, and every pod of it, is gone; an empty UID: only pods are left."""

    uid: str


@dataclass(frozen=True)
class Done:
    """Nothing is left to do."""


@dataclass(frozen=True)
class Stop:
    """It cannot be done without the user: the object is not ours, or fields differ that cannot change."""

    why: Literal["not-ours", "immutable"]
    differences: tuple[Difference, ...] = ()


Action = Probe | Apply | Delete | AwaitEnd | Done | Stop


def decide(desired: Desired, observed: Observed) -> Action:
    """Return the next action."""
    live = observed.live
    if live is not None and not is_ours(live):
        return Stop("not-ours")
    if live is not None and is_deleting(live):
        return AwaitEnd(uid_of(live))
    if live is None or desired.is_replacement:
        if not observed.is_probed:
            return Probe(desired.jobset, is_new=True)
        if live is not None:
            return Delete(uid_of(live))
        return AwaitEnd("") if observed.pods_left else Apply(desired.jobset)
    found = differences(live, desired.jobset)
    if not found:
        return Done()
    fixed = tuple(difference for difference in found if difference.is_immutable)
    if fixed:
        return Stop("immutable", fixed)
    adopted = adopt(live, desired.jobset)
    return Apply(adopted) if observed.is_probed else Probe(adopted, is_new=False)
