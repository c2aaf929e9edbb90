"""The worker: reads spec and environment once, gives the proof, trains, and ends with a code the restart policy knows.

    tpuworker [--spec PATH] [--preflight-only]

A small parent stands before the worker as PID 1: it hands signals on, reaps, and speaks for a worker that was killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tpuworker.signals import die_with_parent, supervise

#: Exit code of a shell for a command that is not there; the restart policy does not repeat it.
_EXIT_NOT_FOUND = 127


def run() -> None:
    """Console entry."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run the worker under its supervisor and return the exit code."""
    parser = argparse.ArgumentParser(prog="tpuworker", description="Runs one host of a TPU job.")
    parser.add_argument("--spec", help="the spec; default: $TPULAUNCH_SPEC, else where the pod mounts it")
    parser.add_argument("--preflight-only", action="store_true", help="end after the proof")
    options = parser.parse_args(arguments)
    if os.getpid() != 1:
        die_with_parent()

    def work() -> int:
        from tpuworker.spec import wire

        if options.spec:
            os.environ[wire.ENV_SPEC] = options.spec
        if options.preflight_only:
            os.environ[wire.ENV_PREFLIGHT_ONLY] = "1"
        return _work(dict(os.environ))

    return supervise(work, _speak_for_the_dead)


def _work(environment: dict[str, str]) -> int:
    from tpuworker.errors import WorkerError
    from tpuworker.report import last_words, write_last_words
    from tpuworker.session.opening import read_setting
    from tpuworker.session.running import Run, make_reporter
    from tpuworker.spec import wire

    sys.path.insert(0, str(Path.cwd()))  # as python -m does: the training code lies in the working directory
    reporter = make_reporter(environment)
    try:
        setting = read_setting(environment)
    except WorkerError as error:
        words = {"message": str(error), "event": wire.EVENT_END, "reason": error.reason, "exit_code": error.exit_code}
        said = f"{error.reason}: {error}" if reporter.is_for_people else str(error)
        reporter.say(said, "ERROR", **{name: value for name, value in words.items() if name != "message"})
        path = Path(environment.get(wire.ENV_TERMINATION_LOG) or wire.TERMINATION_LOG)
        write_last_words(path, last_words({"severity": "ERROR", **words}))
        return error.exit_code
    reporter.host = setting.identity.label
    command = setting.job.spec.train.command
    if command is None:
        return Run(setting, reporter).train()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        reporter.say(f"spec.train.command: {command[0]}: {error.strerror}", "ERROR", event=wire.EVENT_END)
        return _EXIT_NOT_FOUND


def _speak_for_the_dead(number: int) -> None:
    from tpuworker.errors import EXIT_RETRY
    from tpuworker.report import last_words, to_line, write_last_words
    from tpuworker.spec import wire

    name = signal.Signals(number).name
    meanings = {
        signal.SIGKILL: "most likely out of memory: see spec.worker.memory_gib and the shuffle buffer",
        signal.SIGABRT: "the distributed runtime ended it, since another host is gone; that host's log says why",
        signal.SIGSEGV: "a fault in a native library",
        signal.SIGTERM: "it was asked to end before it could save anything",
    }
    code = EXIT_RETRY if number == signal.SIGABRT else 128 + number
    record = {
        "severity": "ERROR",
        "message": f"the worker was ended by {name}: {meanings.get(signal.Signals(number), 'nothing more is known')}",
        "event": wire.EVENT_END,
        "reason": name,
        "exit_code": code,
        "host": f"{os.environ.get(wire.ENV_SLICE_INDEX, '?')}/{os.environ.get(wire.ENV_COMPLETION_INDEX, '?')}",
    }
    is_text = os.environ.get(wire.ENV_LOG) == "text"
    sys.stdout.write((str(record["message"]) if is_text else to_line(record)) + "\n")
    sys.stdout.flush()
    write_last_words(Path(os.environ.get(wire.ENV_TERMINATION_LOG) or wire.TERMINATION_LOG), last_words(record))


if __name__ == "__main__":
    run()
