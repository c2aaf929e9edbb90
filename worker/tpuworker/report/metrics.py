"""Prometheus metrics of one host on a port of its own, for a PodMonitoring or any scraper."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuworker.data.counters import LoaderStats

_GAUGES = {
    "step": "Steps done by the whole job, earlier runs included.",
    "num_steps": "Steps of the job.",
    "loss": "Loss that the trainer reported last.",
    "steps_per_second": "Rate of the last interval.",
    "rows_per_second": "Rows of the whole job per second.",
    "tokens_per_second": "Token slots of the whole job per second.",
    "queue_fill": "Share of the loader's queue that is filled; 0 means that the device waits.",
    "starved_seconds": "Time this host's devices have waited for data.",
    "num_compiles": "Programs compiled by this process.",
    "nothing_to_learn": "Sound records of this host of which no token that reaches the model carries loss.",
}
_UNITS = ("rows", "bytes", "tokens", "busy_seconds", "stall_seconds")
#: Totals of this process, and the label that tells their parts.
_BY_LABEL = {f"stage_{unit}": (f"Total {unit} of a stage of the loader.", "stage") for unit in _UNITS} | {
    "tokens": ("Tokens of this host by what became of them: tokenised = delivered + cut + dropped.", "fate"),
    "bad_records": ("Bad records that this host has met.", "reason"),
    "cache": ("Entries of the token cache that this host has found, missed, written; and size_bytes of all.", "what"),
}


class Metrics:
    """Gauges named ``tpulaunch_*``, and totals of the loader by stage, fate, reason.

    Args:
        port: Where they are served; 0 serves nothing.
        labels: Put on every metric: job, slice, host.
    """

    def __init__(self, port: int, labels: dict[str, str]) -> None:
        self._server: Any = None
        self._labels = labels
        if not port:
            self._gauges: dict[str, Any] = {}
            return
        import prometheus_client as prometheus

        registry = prometheus.CollectorRegistry()
        names = list(labels)
        self._gauges = {
            name: prometheus.Gauge(f"tpulaunch_{name}", text, names, registry=registry)
            for name, text in _GAUGES.items()
        }
        for name, (text, label) in _BY_LABEL.items():
            self._gauges[name] = prometheus.Gauge(f"tpulaunch_{name}", text, [*names, label], registry=registry)
        self._server, self._thread = prometheus.start_http_server(port, registry=registry)

    @property
    def port(self) -> int:
        """The port that is served, 0 if none."""
        return int(self._server.server_port) if self._server else 0

    def set(self, **values: float | None) -> None:
        """Set gauges; None leaves one as it is."""
        for name, value in values.items():
            if value is not None and name in self._gauges:
                self._gauges[name].labels(**self._labels).set(value)

    def set_loader(self, stats: LoaderStats) -> None:
        """Set what the loader's stages have done."""
        self.set(queue_fill=stats.queue_fill, starved_seconds=stats.starved_seconds)
        if not self._gauges:
            return
        for stage, count in stats.stages.items():
            for unit in _UNITS:
                self._gauges[f"stage_{unit}"].labels(**self._labels, stage=stage).set(getattr(count, unit))
        self._set_parts("bad_records", stats.bad)
        self._set_parts("cache", stats.cache_counts)

    def set_tokens(self, account: Mapping[str, int]) -> None:
        """Set what became of the tokens, by the names of :class:`tpuworker.layout.rows.TokenAccount`."""
        if self._gauges:
            self._set_parts("tokens", account)

    def _set_parts(self, name: str, values: Mapping[str, int]) -> None:
        for part, value in values.items():
            self._gauges[name].labels(**self._labels, **{_BY_LABEL[name][1]: part}).set(value)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown()
                self._server.server_close()
