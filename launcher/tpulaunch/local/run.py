"""Running a job on this machine: start all hosts, show what they say, end together, leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from tpulaunch.errors import EXIT_INTERRUPTED, InputError
from tpulaunch.local.printer import Printer
from tpulaunch.local.simulation import describe, simulated
from tpulaunch.local.workers import Ended, Line, Workers
from tpuworker.errors import EXIT_RETRY
from tpuworker.spec import TPUJob, wire
from tpuworker.spec.environment import worker_environment

#: After the first failure the others have this long to say their own last words, and again to end when asked to.
_LAST_WORDS_SECONDS = 5.0
_END_SECONDS = 10.0
_JOB_NAME = "local"


def run(
    job: TPUJob,
    spec_text: str,
    *,
    num_hosts: int | None = None,
    python: str | None = None,
    preflight_only: bool = False,
    accept_changed_data: bool = False,
    is_raw: bool = False,
    report: Path | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a job on this machine and return its exit code.

    Every host is one process with exactly the environment that GKE would give it; the devices are those of PJRT on CPU.

    Args:
        job: The job.
        spec_text: Its document.
        num_hosts: Hosts to simulate, on the nearest slice of the same generation. Default: the spec's own.
        python: Interpreter with the worker's packages. Default: the one that runs.
        preflight_only: End after the proof.
        accept_changed_data: Resume although files, tokenizer or layout changed.
        is_raw: Leave the workers' JSON lines as they are.
        report: Where the HTML page about host 0's run is kept. Default: nowhere.
        out: Where the workers' lines go. Default: stdout.
        err: Where remarks of the launcher go. Default: stderr.
        environment: What workers inherit. Default: this process's.

    Returns:
        0; the code of the first host that failed (42: a restart would be asked for); 130 after Ctrl-C.

    Raises:
        InputError: Too many hosts, or no such interpreter.
        SpecError: The batch does not divide over ``num_hosts``.
    """
    out, err = out or sys.stdout, err or sys.stderr
    interpreter = shutil.which(python or sys.executable)
    if interpreter is None:
        raise InputError(f"--python {python}: no such interpreter")
    planned = simulated(job, num_hosts)
    _remark(err, f"simulating {describe(planned)}, on this machine's CPU with {planned.spec.worker.backend}")
    if planned is not job:
        _remark(err, f"the spec itself has {describe(job)}")
    inherited = dict(os.environ if environment is None else environment)
    absent = [name for name in planned.spec.train.secrets if name not in inherited]
    if absent:
        _remark(
            err, f"secrets that only the cluster knows are taken from your environment; not set: {', '.join(absent)}"
        )
    with _scratch() as directory:
        spec_path = directory / "job.yaml"
        spec_path.write_text(spec_text if planned is job else _text_of(planned), "utf-8")
        shared = {
            wire.ENV_SPEC: str(spec_path),
            wire.ENV_PREFLIGHT_ONLY: "1" if preflight_only else "0",
            wire.ENV_ACCEPT_CHANGED_DATA: "1" if accept_changed_data else "0",
            # "python" in spec.train.command is the worker's, as it is in its image.
            "PATH": os.pathsep.join([str(Path(interpreter).parent), inherited.get("PATH", os.defpath)]),
        }
        environments = host_environments(planned, inherited, shared, directory)
        code = _Local(planned, environments, out=out, err=err, is_raw=is_raw).run([interpreter, "-m", "tpuworker"])
        if report is not None:
            _keep_page(Path(environments[0][wire.ENV_STATE_DIR]) / "report.html", report, err)
        return code


def host_environments(
    job: TPUJob, inherited: Mapping[str, str], shared: Mapping[str, str], directory: Path
) -> list[dict[str, str]]:
    """Return the environment of every host, by rank.

    Args:
        job: The job as it is simulated.
        inherited: Variables of this process; those of a TPU platform are left out.
        shared: Variables that are the same for all hosts.
        directory: Scratch space of this run.
    """
    kept = {name: value for name, value in inherited.items() if not wire.is_reserved_env(name)}
    kept |= job.spec.train.env
    devices = job.spec.slice.devices_per_host
    flags = [flag for flag in kept.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag]
    metrics_port = inherited.get(wire.ENV_METRICS_PORT, "0")
    coordinator = f"127.0.0.1:{_free_port()}"
    name = job.metadata.name or _JOB_NAME
    environments = []
    for rank in range(job.num_hosts):
        slice_index, host = divmod(rank, job.hosts_per_slice)
        place = directory / f"{slice_index}-{host}"
        place.mkdir()
        environments.append(
            kept
            | worker_environment(job, name, slice_index, host, node_name=socket.gethostname(), coordinator=coordinator)
            | dict(shared)
            | {
                wire.ENV_PJRT_DEVICE: "CPU",
                wire.ENV_STATE_DIR: str(place),
                wire.ENV_TERMINATION_LOG: str(place / "termination-log"),
                wire.ENV_METRICS_PORT: str(
                    int(metrics_port) + rank if metrics_port.isdecimal() and int(metrics_port) else 0
                ),
                "XLA_FLAGS": " ".join([*flags, f"--xla_force_host_platform_device_count={devices}"]),
                "CPU_NUM_DEVICES": str(devices),
                "PYTHONUNBUFFERED": "1",
                # Warnings of native libraries, once per process, say nothing about the job.
                "TF_CPP_MIN_LOG_LEVEL": kept.get("TF_CPP_MIN_LOG_LEVEL", "2"),
            }
        )
    return environments


class _Local:
    """One run: the workers and the wish to end them."""

    def __init__(
        self, job: TPUJob, environments: list[dict[str, str]], *, out: TextIO, err: TextIO, is_raw: bool
    ) -> None:
        self._job = job
        self._environments = environments
        self._err = err
        self._labels = ["/".join(map(str, divmod(r, job.hosts_per_slice))) for r in range(job.num_hosts)]
        self._printer = Printer(out, max(map(len, self._labels)), is_raw=is_raw)
        self._workers = Workers()
        self._deadline: float | None = None
        self._was_asked = False
        self._interrupts = 0
        self._first_failure: Ended | None = None

    def run(self, command: list[str]) -> int:
        with _interruptible():
            try:
                for environment in self._environments:
                    self._workers.start(command, environment)
                while self._workers.are_running:
                    try:
                        self._step()
                    except KeyboardInterrupt:
                        self._interrupt()
            finally:
                self._workers.kill()
        return self._exit_code()

    def _step(self) -> None:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        event = self._workers.next_event(left)
        match event:
            case Line(rank, text):
                self._printer.line(rank, self._labels[rank], text)
            case Ended(_, code):
                if code and self._first_failure is None:
                    self._first_failure = event
                    if not self._interrupts:
                        self._deadline = time.monotonic() + _LAST_WORDS_SECONDS
            case None:
                self._press()

    def _press(self) -> None:
        """The time is up: ask once, then end."""
        if not self._was_asked:
            self._was_asked = True
            self._workers.terminate()
            self._deadline = time.monotonic() + _END_SECONDS
            return
        self._workers.kill()
        self._deadline = None

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            _remark(self._err, "ending the workers at once")
            self._workers.kill()
            self._deadline = None
            return
        grace = self._job.spec.schedule.grace_seconds
        _remark(self._err, f"stopping: the workers have {grace} s to save; Ctrl-C again ends them at once")
        self._was_asked = True
        self._workers.terminate()
        self._deadline = time.monotonic() + grace

    def _exit_code(self) -> int:
        if self._interrupts:
            return EXIT_INTERRUPTED
        failure = self._first_failure
        if failure is None:
            return 0
        # A host that lost its peer can end before the peer that was lost: the cause is the other one.
        causes = [
            Ended(rank, code) for rank, code in sorted(self._workers.codes.items()) if code not in (0, EXIT_RETRY)
        ]
        if failure.code == EXIT_RETRY and causes and not self._was_asked:
            failure = causes[0]
        said = self._last_words(failure.rank)
        # Or it ended with the failure of a peer that stayed until all had heard of it.
        ranks = {label: rank for rank, label in enumerate(self._labels)}
        cause = ranks.get(str(said.get("failed_host")), failure.rank)
        if cause != failure.rank and self._workers.codes.get(cause):
            failure = Ended(cause, self._workers.codes[cause])
            said = self._last_words(cause)
        words = str(said.get("message", "")).partition("\n")[0]
        label = self._labels[failure.rank]
        _remark(self._err, f"host {label} failed first, with exit code {failure.code}{': ' + words if words else ''}")
        return failure.code

    def _last_words(self, rank: int) -> dict[str, Any]:
        path = Path(self._environments[rank][wire.ENV_TERMINATION_LOG])
        try:
            record = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="tpulaunch-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    try:
        before = {number: signal.signal(number, interrupt) for number in numbers}
    except ValueError:  # not the main thread: whoever called has to end us
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_page(made: Path, wanted: Path, err: TextIO) -> None:
    try:
        shutil.copyfile(made, wanted)
    except OSError as error:
        _remark(err, f"no report: {error.filename}: {error.strerror}")
    else:
        _remark(err, f"report: {wanted}")


def _text_of(job: TPUJob) -> str:
    """Return a job as a document; JSON is YAML."""
    return job.model_dump_json(by_alias=True, exclude_unset=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _remark(stream: TextIO, text: str) -> None:
    stream.write(f"-- {text}\n")
    stream.flush()
