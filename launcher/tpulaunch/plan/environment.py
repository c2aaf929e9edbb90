"""The variables of a worker container: who it is, where all meet, what this run is for, what the user adds.

Nothing here is of a backend: each sets what its library needs before it loads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpulaunch.names import coordinator_host
from tpulaunch.plan.storage import SCRATCH_PATH
from tpulaunch.plan.values import FromField, FromSecret, Literally, Variable
from tpuworker.spec import wire
from tpuworker.spec.job import TPUJob

_EXPANDED = re.compile(r"\$([$(]|[^\x00-\x7f])")
#: Labels that JobSet puts on every pod.
_JOB_INDEX = "metadata.labels['jobset.sigs.k8s.io/job-index']"
_RESTART_ATTEMPT = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
_JOBSET_UID = "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"


@dataclass(frozen=True)
class Switches:
    """What a run is for, beside the spec.

    Attributes:
        preflight_only: End after the proof, without a training step.
        accept_changed_data: Resume although files, tokenizer or layout changed since the last checkpoint. It holds for
            the change that the first start finds; restarts have to find the same data.
    """

    preflight_only: bool = False
    accept_changed_data: bool = False

    @property
    def accepts_once(self) -> bool:
        """Whether restarts have to know what the first start accepted; a proof alone leaves nothing behind."""
        return self.accept_changed_data and not self.preflight_only

    def variables(self) -> dict[str, str]:
        """Return the variables that turn on what is on."""
        chosen = {
            wire.ENV_PREFLIGHT_ONLY: self.preflight_only,
            wire.ENV_ACCEPT_CHANGED_DATA: self.accept_changed_data,
        }
        return {name: "1" for name, is_on in chosen.items() if is_on}


_IDENTITY = (
    FromField(wire.ENV_SLICE_INDEX, _JOB_INDEX),
    FromField(wire.ENV_RESTART_ATTEMPT, _RESTART_ATTEMPT),
    FromField(wire.ENV_POD_NAME, "metadata.name"),
    FromField(wire.ENV_POD_NAMESPACE, "metadata.namespace"),
    FromField(wire.ENV_NODE_NAME, "spec.nodeName"),
)

#: Defaults that a user's variable of the same name replaces. The root file system is read-only, so whatever libraries
#: keep in the home directory has to go to scratch.
_DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "HOME": SCRATCH_PATH,
    "XDG_CACHE_HOME": f"{SCRATCH_PATH}/cache",
    "HF_HOME": f"{SCRATCH_PATH}/cache/huggingface",
}


def plan_environment(job: TPUJob, name: str, switches: Switches) -> tuple[Variable, ...]:
    """Return the variables of each container, ours first: none of the user's can be one of the platform's."""
    train = job.spec.train
    kept = {key: value for key, value in _DEFAULTS.items() if key not in train.env and key not in train.secrets}
    return (
        *_IDENTITY,
        Literally(wire.ENV_COORDINATOR, coordinator_host(name)),
        *_multislice(job, name),
        *_literals(switches.variables()),
        *((FromField(wire.ENV_SUBMISSION, _JOBSET_UID),) if switches.accepts_once else ()),
        *_literals(kept),
        *_literals(train.env),
        *(FromSecret(key, ref.secret, ref.key) for key, ref in train.secrets.items()),
    )


def _multislice(job: TPUJob, name: str) -> tuple[Variable, ...]:
    """Return what GKE's webhook injects into multislice pods, for clusters that have no such webhook."""
    if job.spec.schedule.multislice_env == "auto" or job.spec.slice.count == 1:
        return ()
    return (
        Literally(wire.ENV_MEGASCALE_NUM_SLICES, str(job.spec.slice.count)),
        FromField(wire.ENV_MEGASCALE_SLICE_ID, _JOB_INDEX),
        Literally(wire.ENV_MEGASCALE_COORDINATOR, coordinator_host(name)),
    )


def _literals(variables: Mapping[str, str]) -> tuple[Literally, ...]:
    return tuple(Literally(name, without_expansion(value)) for name, value in variables.items())


def without_expansion(value: str) -> str:
    """Return the value to write so that the kubelet hands over exactly ``value``.

    The kubelet replaces ``$(NAME)`` by another variable and ``$$`` by ``$``, and older ones break a character of
    several bytes behind a ``$``. A text with none of them is left as it is, for the reader's sake; in any other every
    ``$`` is doubled.
    """
    return value.replace("$", "$$") if _EXPANDED.search(value) else value
