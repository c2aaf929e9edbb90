"""The accelerator library of a job: there, and with the devices that the slice promises."""

from __future__ import annotations

import importlib.util

from tpuworker import backends
from tpuworker.errors import Fault, IdentityError, SpecError
from tpuworker.spec import TPUJob


def load_backend(name: str) -> backends.Backend:
    """Return a backend that is not started.

    Raises:
        SpecError: Its library is not installed.
    """
    extra = name.replace("_", "-")
    if importlib.util.find_spec(name) is None:
        hint = f"pip install 'tpulaunch[{extra}]' in the worker's image, or choose the backend that is there"
        raise SpecError([Fault("spec.worker.backend", f"{name}, which is not installed", "an installed one", hint)])
    return backends.load(name)


def judge_devices(job: TPUJob, backend: backends.Backend) -> None:
    """Refuse a host that does not have the devices that every host of the slice has.

    Raises:
        IdentityError: It has more, or fewer.
    """
    found, wanted = backend.num_local_devices, job.spec.slice.devices_per_host
    if found != wanted:
        raise IdentityError(
            [
                Fault(
                    "devices of this host",
                    f"{found} {backend.versions['platform']} devices",
                    f"{wanted}, as every host of {job.spec.slice.generation} {job.spec.slice.topology} has",
                    "see that the pod asks for all chips of the host; without TPUs tpulaunch run --local sets "
                    "XLA_FLAGS=--xla_force_host_platform_device_count and CPU_NUM_DEVICES",
                )
            ]
        )
