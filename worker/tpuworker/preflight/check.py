"""Giving the proof: hosts agree, batches keep one shape to the epoch's end, and one program serves them all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpuworker.backends import Backend
from tpuworker.backends.consensus import together
from tpuworker.data.batches import HostBatch
from tpuworker.data.loader import Loader
from tpuworker.errors import Fault, ShapeError
from tpuworker.identity import Identity
from tpuworker.preflight import agreement, digest
from tpuworker.preflight.verdict import Verdict
from tpuworker.spec.job import TPUJob

#: Batches of the epoch's end that are checked: the last one is where shapes change elsewhere.
_LAST_BATCHES = 2


@dataclass(frozen=True)
class Proof:
    """What is to be proved, on one host.

    Attributes:
        job: The job.
        job_name: Its name.
        identity: This host.
        backend: Started.
        facts: What all hosts must have in common.
        engine: What makes the tokens, in words.
    """

    job: TPUJob
    job_name: str
    identity: Identity
    backend: Backend
    facts: Mapping[str, str]
    engine: str = ""


@dataclass
class _Seen:
    """What one host found in its batches."""

    shapes: dict[str, list[int]] = field(default_factory=dict)
    digests: bytes = b""
    filled_slots: int = 0
    slots: int = 0
    fault: str = ""


def preflight(proof: Proof, first: Loader, last: Loader | None) -> Verdict:
    """Return the verdict, the same on all hosts.

    Args:
        proof: What is to be proved.
        first: A loader at the step where training will begin.
        last: A loader that gives the epoch's last batches only, or None if ``first`` reaches them.

    Raises:
        WorkerError: The data could not be read, on this or another host.
    """
    started = time.perf_counter()
    plan, job = first.plan, proof.job
    verdict = Verdict(
        verdict="passed",
        job=proof.job_name,
        backend=proof.backend.name,
        versions=proof.backend.versions,
        num_slices=proof.identity.num_slices,
        num_hosts=proof.identity.num_hosts,
        num_devices=proof.backend.num_devices,
        rows_per_host=plan.rows_per_host,
        max_compiles=job.spec.preflight.max_compiles,
        num_rows=plan.num_rows,
        steps_per_epoch=plan.steps_per_epoch,
        num_steps=plan.num_steps,
        start_step=first.cursor.step,
        tokens_per_step=plan.tokens_per_step,
        facts=dict(proof.facts),
        engine=proof.engine,
    )
    labels = [proof.identity.label_of(rank) for rank in range(proof.identity.num_hosts)]
    facts = dict(proof.facts) | {
        "steps of the job": str(plan.num_steps),
        "steps of an epoch": str(plan.steps_per_epoch),
        "cursor": first.cursor.to_json(),
    }
    told = proof.backend.exchange("facts", agreement.to_bytes(facts))
    faults = agreement.disagreements([agreement.from_bytes(payload) for payload in told], labels)
    if faults:  # batches of hosts that differ prove nothing
        return _refused(verdict, faults, started)

    batches = together(proof.backend, proof.identity, "preflight batches", lambda: list(_batches(job, first, last)))
    seen = _look([batch for batch, _ in batches])
    head = {name: value for name, value in vars(seen).items() if name != "digests"}
    told = proof.backend.exchange("batches", json.dumps(head).encode() + b"\n" + seen.digests)
    parts = [payload.partition(b"\n") for payload in told]
    hosts = [json.loads(head) for head, _, _ in parts]
    faults = [
        Fault(f"host {label}", host["fault"], "every batch in one shape and type", host=label)
        for label, host in zip(labels, hosts, strict=True)
        if host["fault"]
    ]
    if faults:  # a batch of another shape must not reach the devices: its host would wait for a program of its own
        return _refused(verdict, faults, started)
    hashes = digest.global_digests([digests for _, _, digests in parts], len(batches))
    num_compiles, faults = _run(proof, [batch for batch, _ in batches], labels)
    verdict = replace(
        verdict,
        shapes={name: [shape[0] * proof.identity.num_hosts, *shape[1:]] for name, shape in seen.shapes.items()},
        num_batches=len(batches),
        num_last_batches=sum(is_last for _, is_last in batches),
        num_compiles=num_compiles,
        fill=sum(host["filled_slots"] for host in hosts) / max(1, sum(host["slots"] for host in hosts)),
        data_hash=digest.joined(hashes),
    )
    faults += _too_many_compilations(verdict)
    return _refused(verdict, faults, started) if faults else replace(verdict, seconds=_seconds(started))


def _look(batches: list[HostBatch]) -> _Seen:
    """Judge the batches while they are still in memory."""
    seen = _Seen()
    digests = []
    try:
        for batch in batches:
            _judge_shape(seen, batch.arrays, batch.step)
            digests.append(digest.row_digests(batch.arrays))
            mask = batch.arrays.get("attention_mask", batch.arrays.get("segment_ids"))
            if mask is not None:
                seen.filled_slots += int(np.count_nonzero(mask))
                seen.slots += mask.size
    except ShapeError as error:
        seen.fault = str(error)
    seen.digests = b"".join(digests)
    return seen


def _run(proof: Proof, batches: list[HostBatch], labels: list[str]) -> tuple[int, list[Fault]]:
    """Run the probe on every batch and return the most compilations of any host, and what went wrong in transfers."""
    backend = proof.backend
    num_compiles = 0
    fault = ""
    for number, batch in enumerate(batches):
        on_devices = backend.put(batch.arrays)
        before = backend.num_compiles()
        backend.probe(on_devices)
        num_compiles += backend.num_compiles() - before  # reading back, below, may compile a program that gathers
        if number == 0:
            fault = _transfer_fault(batch.arrays, backend.local_rows(on_devices))
    told = [json.loads(t) for t in backend.exchange("ran", json.dumps([num_compiles, fault]).encode())]
    faults = [
        Fault(
            f"host {label}", found, "on the devices what was put there", "the runtime or a device is broken", host=label
        )
        for label, (_, found) in zip(labels, told, strict=True)
        if found
    ]
    return max(count for count, _ in told), faults


def _batches(job: TPUJob, first: Loader, last: Loader | None) -> Iterator[tuple[HostBatch, bool]]:
    num_batches, end = job.spec.preflight.batches, first.plan.num_steps
    from_first = num_batches if last is None else max(1, num_batches - _LAST_BATCHES)
    for batch in first:
        epochs_last = (batch.step + 1) % first.plan.steps_per_epoch == 0 or batch.step + 1 == end
        yield batch, epochs_last
        from_first -= 1
        if from_first == 0:
            break
    if last is not None:
        for batch in last:
            yield batch, True
            if (batch.step + 1) % last.plan.steps_per_epoch == 0:
                return


def first_of_last(start_step: int, num_steps: int, steps_per_epoch: int, num_batches: int) -> int | None:
    """Return the step at which the last batches of the epoch (or the job) begin, or None if the first ones reach them.

    Args:
        start_step: Step where training will begin.
        num_steps: Steps of the job.
        steps_per_epoch: Steps of an epoch.
        num_batches: Batches that are checked.
    """
    end = min(num_steps, (start_step // steps_per_epoch + 1) * steps_per_epoch)
    if num_batches <= _LAST_BATCHES or start_step + num_batches >= end:
        return None
    return end - _LAST_BATCHES


def _judge_shape(seen: _Seen, arrays: Mapping[str, NDArray[Any]], step: int) -> None:
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    if not seen.shapes:
        seen.shapes = shapes
    faults = [
        Fault(f"batch of step {step}: {name}", str(shapes.get(name, "nothing")), f"{wanted} in every batch")
        for name, wanted in seen.shapes.items()
        if shapes.get(name) != wanted
    ]
    faults += [
        Fault(f"batch of step {step}: {name}", str(array.dtype), "int32")
        for name, array in arrays.items()
        if array.dtype != np.int32
    ]
    if faults:
        raise ShapeError(faults)


def _transfer_fault(arrays: Mapping[str, NDArray[Any]], back: Mapping[str, NDArray[Any]]) -> str:
    names = [name for name, array in arrays.items() if not np.array_equal(array, back[name])]
    return f"other values of {', '.join(names)} on the devices" if names else ""


def _too_many_compilations(verdict: Verdict) -> list[Fault]:
    if verdict.num_compiles <= verdict.max_compiles:
        return []
    return [
        Fault(
            "spec.preflight.max_compiles",
            f"{verdict.num_compiles} compilations over {verdict.num_batches} batches of one shape",
            f"at most {verdict.max_compiles}",
            "the backend compiles anew although nothing changed: allow more only if you know why",
        )
    ]


def _refused(verdict: Verdict, faults: list[Fault], started: float) -> Verdict:
    return replace(verdict, verdict="refused", faults=tuple(faults), seconds=_seconds(started))


def _seconds(started: float) -> float:
    return round(time.perf_counter() - started, 1)
