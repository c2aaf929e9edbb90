"""Deletion: a job and everything it owns, that very object and no other of its name, and the wait for its end."""

from __future__ import annotations

from typing import Literal

from tpulaunch.cluster.errors import ApiError
from tpulaunch.cluster.kinds import JOBSET
from tpulaunch.cluster.logs import JobRef
from tpulaunch.cluster.objects import LABEL_MANAGED_BY, Object, is_ours, label_of, uid_of
from tpulaunch.cluster.wait import Deadline, await_gone
from tpulaunch.errors import ConflictError, LauncherError

Cascade = Literal["background", "foreground", "orphan"]


def delete_job(
    job: JobRef,
    jobset: Object,
    *,
    cascade: Cascade = "foreground",
    grace_seconds: int | None = None,
    is_dry_run: bool = False,
    deadline: Deadline | None = None,
) -> None:
    """Delete a job that was looked at, and wait for its end if there is a deadline.

    Args:
        job: The job.
        jobset: Its JobSet as it was read; only this very object is deleted.
        cascade: What becomes of what it owns. ``orphan`` leaves it running.
        grace_seconds: Grace of the pods; None: their own.
        is_dry_run: Ask only.
        deadline: Until when to wait for the pods to be gone; None: do not wait.

    Raises:
        ConflictError: The job is not ours.
        WaitTimeoutError: It was not gone in time.
    """
    if not is_ours(jobset):
        owner = label_of(jobset, LABEL_MANAGED_BY)
        raise ConflictError(
            f"{JOBSET.spelled}/{job.name} in namespace {job.namespace} was not made by tpulaunch"
            f"{f' but by {owner!r}' if owner else ''}; delete it with kubectl"
        )
    try:
        job.api.delete(
            JOBSET,
            job.namespace,
            job.name,
            uid=uid_of(jobset),
            propagation=cascade.capitalize(),
            grace_seconds=grace_seconds,
            is_dry_run=is_dry_run,
        )
    except ApiError as error:
        if error.status.code == 409:
            what = f"{JOBSET.spelled}/{job.name} in namespace {job.namespace}"
            raise ConflictError(f"{what} was replaced by another of its name meanwhile; look again") from None
        if error.status.code == 403:
            raise LauncherError(f"{job.api.where}: {error.status.message}") from None
        if error.status.code != 404:
            raise
    if deadline is not None and not is_dry_run and cascade != "orphan":
        await_gone(job.api, job.namespace, job.name, uid_of(jobset), deadline)
