"""Prometheus metrics of one host on a port of its own, for a PodMonitoring or any scraper."""

from __future__ import annotations

import contextlib
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
}


class Metrics:
    """Gauges named ``tpulaunch_*``, and per-stage totals of the loader.

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
        for unit in ("rows", "bytes", "tokens", "busy_seconds", "stall_seconds"):
            self._gauges[f"stage_{unit}"] = prometheus.Gauge(
                f"tpulaunch_stage_{unit}",
                f"Total {unit} of a stage of the loader.",
                [*names, "stage"],
                registry=registry,
            )
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
            for unit in ("rows", "bytes", "tokens", "busy_seconds", "stall_seconds"):
                self._gauges[f"stage_{unit}"].labels(**self._labels, stage=stage).set(getattr(count, unit))

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown()
                self._server.server_close()
