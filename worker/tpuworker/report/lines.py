"""What the worker says: one JSON object per line on stdout, and its last words for the pod's termination message.

Fields of every line: ``severity``, ``time``, ``message``, ``host`` (slice/host). A line that carries a fact for
machines has ``event`` too:

    preflight   verdict (passed, refused), preflight: all of the verdict
    progress    step, num_steps, steps_per_second, rows_per_second, tokens_per_second, eta_seconds, loss, queue_fill,
                stages, tokens (the account), lengths, and where they apply bad, nothing_to_learn,
                cache; shuffle in the first one
    end         exit_code, reason (class of the failure, empty after success), step

The last words are the ``end`` line with the verdict in it, cut to what the kubelet keeps.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import math
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from tpuworker.spec.wire import TERMINATION_LIMIT_BYTES

Severity = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class Reporter:
    """Writes lines; safe to call from any thread.

    Args:
        style: ``json`` for machines, ``text`` for people.
        host: ``slice/host`` of this process; empty before it is known.
        stream: Where lines go. Default: stdout.
    """

    def __init__(self, style: Literal["json", "text"] = "json", host: str = "", stream: TextIO | None = None) -> None:
        self.host = host
        self._style = style
        self._stream = sys.stdout if stream is None else stream
        self._lock = threading.Lock()
        self._health: Path | None = None

    @property
    def is_for_people(self) -> bool:
        """Whether lines are read by people."""
        return self._style == "text"

    def keep_health(self, path: Path) -> None:
        """Keep the last line of the worker itself in a file, as JSON, so that its age and step tell whether it lives.

        The file is replaced whole. Lines of libraries do not count: they also come from a worker that hangs.
        Nothing is killed by it, since a first step may compile for half an hour; who wants a probe asks for the age:
        ``find /tmp/tpulaunch -name health.json -mmin -30 | grep -q .``

        Args:
            path: The file; its directory is made.
        """
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._health = path

    def say(self, message: str, severity: Severity = "INFO", **fields: Any) -> None:
        """Write one line.

        Args:
            message: For people. Under ``text`` it may span lines.
            severity: As Cloud Logging names it.
            fields: Facts for machines, plain values.
        """
        record = to_line({"severity": severity, "time": _now(), "message": message, "host": self.host} | fields)
        line = record
        if self._style == "text":
            mark = "" if severity == "INFO" else f"{severity}: "
            line = f"{self.host + ' | ' if self.host else ''}{mark}{message}"
        with self._lock:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._stream.write(line + "\n")
                self._stream.flush()
            if self._health is not None and "logger" not in fields:
                with contextlib.suppress(OSError):  # a full disk is no reason to stop training
                    unfinished = self._health.with_suffix(".new")
                    unfinished.write_text(record + "\n", "utf-8")
                    unfinished.replace(self._health)

    def take_logging(self, level: int = logging.INFO) -> None:
        """Make Python's logging write through this reporter, so that libraries' lines carry a severity too."""
        root = logging.getLogger()
        root.handlers[:] = [_Handler(self)]
        root.setLevel(level)
        # One line per request or per compiled function is no news to anybody.
        for name in ("jax", "absl", "httpx", "urllib3", "filelock", "fsspec", "torch_xla"):
            logging.getLogger(name).setLevel(logging.WARNING)


class _Handler(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + logging.Formatter().formatException(record.exc_info)
        severity: Severity = "ERROR"
        for bound, name in ((logging.DEBUG, "DEBUG"), (logging.INFO, "INFO"), (logging.WARNING, "WARNING")):
            if record.levelno <= bound:
                severity = name  # type: ignore[assignment]
                break
        self._reporter.say(message, severity, logger=record.name)


def to_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of strict JSON; numbers that JSON does not know become text."""
    return json.dumps(_strict(record), ensure_ascii=False, separators=(",", ":"), default=str)


def last_words(record: Mapping[str, Any], limit_bytes: int = TERMINATION_LIMIT_BYTES) -> str:
    """Return a record as JSON of at most so many bytes: the message is cut in its middle, then the verdict goes.

    Args:
        record: Fields of the ``end`` line; ``message`` a text, ``preflight`` a mapping or absent.
        limit_bytes: What the kubelet keeps.
    """
    kept = dict(record)
    line = to_line(kept)
    if len(line.encode()) > limit_bytes and isinstance(kept.get("preflight"), Mapping):
        kept["preflight"] = {"verdict": kept["preflight"].get("verdict", "")}
        line = to_line(kept)
    message = str(kept.get("message", ""))
    keep = len(message)
    while len(line.encode()) > limit_bytes and keep > 0:
        keep = keep * 3 // 4
        kept["message"] = f"{message[: keep // 2]} ... {message[len(message) - keep // 2 :]}"
        line = to_line(kept)
    return line


def write_last_words(path: Path, text: str) -> None:
    """Write the last words; a file that cannot be written is no reason to fail in another way."""
    with contextlib.suppress(OSError):
        path.write_text(text, "utf-8")


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
