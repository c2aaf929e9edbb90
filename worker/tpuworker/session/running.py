"""Running a session to its end, in this process or in a program that attaches: last words and exit code, always."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tpuworker.backends.consensus import PeerError, describe
from tpuworker.backends.failures import is_peer_failure
from tpuworker.errors import EXIT_OK, EXIT_RETRY, Fault, PreflightError, RetryError, SpecError, WorkerError
from tpuworker.report.lines import Reporter, last_words, write_last_words
from tpuworker.report.page import page
from tpuworker.session.opening import Opening, Setting, read_setting
from tpuworker.session.training import Session
from tpuworker.signals import StopRequest
from tpuworker.spec import wire

if TYPE_CHECKING:
    from tpuworker.preflight import Verdict

#: A host that stopped for another's sake leaves the first word to it. Its pod says that it was evicted, which costs no
#: restart; a peer that ended before it would be taken for the cause, and counted. Whoever restarts the job ends the
#: peers, seconds later; past this time nobody does.
_FOLLOW_SECONDS = 60.0


class Run:
    """One run of a worker: what it says at the end, and the code it ends with.

    Args:
        setting: What the environment says.
        reporter: The log.
    """

    def __init__(self, setting: Setting, reporter: Reporter) -> None:
        self.setting = setting
        self.reporter = reporter
        reporter.keep_health(setting.state_dir / "health.json")
        self.stop = StopRequest()
        self.opening = Opening(setting, reporter, self.stop, self._follow)
        self._speaking = threading.RLock()  # a failure while success is told is told by the same thread

    def train(self) -> int:
        """Give the proof, call ``spec.train.entrypoint``, and return the exit code."""
        self.stop.listen()
        try:
            loaded: list[Callable[[Session], Any]] = []
            session = self.opening.open(lambda: loaded.append(load_entrypoint(self.setting.job.spec.train.entrypoint)))
            if self.setting.preflight_only:
                session.close()
            elif session.step < session.num_steps:
                loaded[0](session)
            return self.succeed()
        except KeyboardInterrupt:
            return self.fail(RetryError("interrupted"))
        except BaseException as error:
            return self.fail(error)

    def succeed(self) -> int:
        """Leave the other hosts and return the code of a run whose training function has returned."""
        session = self.opening.session
        assert session is not None
        if session.should_stop and session.step < session.num_steps:
            who = "asked" if self.stop else "another host was asked"
            session.save_cursor()
            session.close()
            session.backend.wait()
            session.backend.stop()  # together: the first host to end must not look like a lost peer to the others
            self.stop.wait(_FOLLOW_SECONDS)
            return self.fail(
                RetryError(f"stopped after step {session.step} of {session.num_steps}, as {who} (SIGTERM)")
            )
        session.close()
        session.backend.wait()
        session.backend.stop()
        if self.setting.preflight_only:
            message = "preflight passed: nothing was trained, as asked"
        elif session.step < session.num_steps:
            message = f"training returned after step {session.step} of {session.num_steps}"
        else:
            message = f"all {session.num_steps} steps done"
        self._speak_alone()
        self._end(message, "", EXIT_OK)
        return EXIT_OK

    def fail(self, error: BaseException) -> int:
        """Say what went wrong and return the exit code that goes with it; hosts that are gone are not waited for."""
        self._speak_alone()
        first = self.opening.first_failure
        if first is not None and is_peer_failure(error):
            error = first.heard() or error
        reason, message, code = describe(error)
        # What a restart cures has a pod as its cause, and whoever ended that has to find it ended first.
        is_told = first is not None and code not in (EXIT_OK, EXIT_RETRY)
        if first is not None and is_told and not isinstance(error, PeerError):
            first.tell(error)
        if not isinstance(error, WorkerError | SystemExit) and not is_peer_failure(error):
            self.reporter.say("".join(traceback.format_exception(error)).rstrip(), "ERROR")
        with contextlib.suppress(Exception):
            if self.opening.session is not None and threading.current_thread() is threading.main_thread():
                self.opening.session.close()
        self._end(message, reason, code, _host_at_fault(error))
        if first is not None and is_told:
            first.leave()
        return code

    def _speak_alone(self) -> None:
        """Let one thread speak the last words; one that comes later waits here for the end of the process."""
        if not self._speaking.acquire(blocking=False):
            while True:
                time.sleep(_FOLLOW_SECONDS)

    def _follow(self, error: PeerError) -> None:
        """End this process with another host's failure, wherever its main thread is."""
        try:
            self.fail(error)
        finally:
            _leave(error.exit_code)

    def _end(self, message: str, reason: str, code: int, failed_host: str = "") -> None:
        session, verdict = self.opening.session, self.opening.verdict
        record: dict[str, Any] = {
            "severity": "INFO" if code == EXIT_OK else "WARNING" if code == EXIT_RETRY else "ERROR",
            "message": message,
            "event": wire.EVENT_END,
            "exit_code": code,
            "host": self.setting.identity.label,
        }
        if reason:
            record["reason"] = reason
            record["failed_host"] = failed_host or self.setting.identity.label
        if session is not None:
            record |= {"step": session.step, "num_steps": session.num_steps}
            if session.steps_per_second is not None:
                record["steps_per_second"] = round(session.steps_per_second, 4)
        fields = {name: value for name, value in record.items() if name not in ("severity", "message", "host")}
        is_told = not reason or f"{reason}: " in message or not self.reporter.is_for_people
        said = message if is_told else f"{reason}: {message}"
        self.reporter.say(said, record["severity"], **fields)
        if verdict is not None:
            record["preflight"] = verdict.in_short()
            self._write_page(verdict, message)
        write_last_words(self.setting.termination_log, last_words(record))

    def _write_page(self, verdict: Verdict, end: str) -> None:
        identity = self.setting.identity
        title = f"{self.setting.job_name}, host {identity.label}, attempt {identity.restart_attempt}"
        history = self.opening.session.history if self.opening.session is not None else []
        with contextlib.suppress(OSError):
            self.setting.state_dir.mkdir(parents=True, exist_ok=True)
            (self.setting.state_dir / "report.html").write_text(page(title, verdict.rows(), history, end), "utf-8")


def _host_at_fault(error: BaseException) -> str:
    """Return ``slice/host`` of the host that a failure names; empty if it names none, or a fault of all hosts."""
    return error.host if isinstance(error, PeerError | PreflightError) else ""


def load_entrypoint(path: str | None) -> Callable[[Session], Any]:
    """Return the function that ``spec.train.entrypoint`` names.

    Raises:
        SpecError: There is no such module or function. Errors inside the module pass through.
    """
    assert path is not None  # a job has an entrypoint or a command
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        hint = "the image has to hold it, importable from its working directory or PYTHONPATH"
        fault = Fault("spec.train.entrypoint", f"no module {error.name}", f"a function {path}", hint)
        raise SpecError([fault]) from None
    function = getattr(module, name, None)
    if not callable(function):
        found = f"no function {name} in {getattr(module, '__file__', module_name)}"
        raise SpecError([Fault("spec.train.entrypoint", found, "a function that takes the session")])
    return function  # type: ignore[no-any-return]


def make_reporter(environment: Mapping[str, str]) -> Reporter:
    """Return the log this process writes, and let Python's logging write to it."""
    reporter = Reporter("text" if environment.get(wire.ENV_LOG) == "text" else "json")
    reporter.take_logging()
    return reporter


def attach_here() -> Session:
    """Open the session of an attached program; its end, good or bad, becomes the worker's."""
    environment = dict(os.environ)
    reporter = make_reporter(environment)
    try:
        setting = read_setting(environment)
    except WorkerError as error:
        reporter.say(str(error), "ERROR", event=wire.EVENT_END, reason=error.reason, exit_code=error.exit_code)
        raise SystemExit(error.exit_code) from None
    reporter.host = setting.identity.label
    run = Run(setting, reporter)
    run.stop.listen()
    try:
        session = run.opening.open()
    except BaseException as error:
        _leave(run.fail(error))
    if setting.preflight_only or session.step >= session.num_steps:
        _leave(run.succeed())
    _watch_the_end(run)
    return session


def _watch_the_end(run: Run) -> None:
    def failed(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        _leave(run.fail(error))

    def ended() -> None:
        code = run.succeed()
        if code != EXIT_OK:
            _leave(code)

    sys.excepthook = failed
    atexit.register(ended)


def _leave(code: int) -> Any:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
