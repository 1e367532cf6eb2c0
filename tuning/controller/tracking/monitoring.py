"""Metrics for Prometheus, from the events of a session."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths, pipeline_of
from results.records.trial import Report, TrialRecord
from results.tracking import Ending
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from search_spaces.spec.tracking import MonitoringSpec
from tuning.controller.events import SessionStart, SweepEvents

if TYPE_CHECKING:
    from results.metrics.server import MetricsServer
    from results.metrics.sweep_metrics import SweepMetrics

log = logging.getLogger(__name__)


@contextmanager
def exporters(spec: SweepSpec, paths: SweepPaths) -> Iterator[Sequence[SweepEvents]]:
    """The observers that the `monitoring` section asks for: none or one.

    Raises:
        UserError: the port cannot be used, or a library is missing.
    """
    if not spec.monitoring.enabled:
        yield ()
        return
    try:
        import results.metrics.server  # noqa: F401
    except ImportError as e:
        raise UserError("monitoring: needs pip install 'tune-platform[monitoring]'") from e
    server = _server(spec.monitoring, paths) if spec.monitoring.port is not None else None
    exporter = Exporter(spec, server)
    try:
        yield (exporter,)
    finally:
        exporter.close()


class Exporter(SweepEvents):
    """Keeps the metrics of a session up to date, and serves or writes them.

    A thread of its own does the work, in the order of the events: the driver waits for nothing.
    """

    def __init__(self, spec: SweepSpec, server: MetricsServer | None) -> None:
        self._spec, self._server = spec, server
        self._worker = ThreadPoolExecutor(1, "monitoring")
        self._metrics: SweepMetrics
        self._open = ExitStack()
        if server is not None:
            self._open.callback(server.close)

    def session_started(self, start: SessionStart) -> None:
        """Read what earlier sessions did; then open the port."""
        from results.metrics.sweep_metrics import SweepMetrics

        self._metrics = SweepMetrics(start.paths, self._spec, start.spent_s)
        self._do(self._metrics.add_history, start.history)
        self._worker.submit(self._publish, start.paths).add_done_callback(_log_error)

    def concurrency_known(self, trials: int) -> None:
        """The number of places for trials."""
        self._do(lambda: setattr(self._metrics, "slots", trials))

    def trial_started(self, record: TrialRecord) -> None:
        """See `SweepEvents`."""
        self._do(self._metrics.trial_started, record)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """See `SweepEvents`."""
        self._do(self._metrics.trial_reported, record, report)

    def trial_ended(self, record: TrialRecord) -> None:
        """See `SweepEvents`."""
        self._do(self._metrics.trial_ended, record)

    def session_ended(self, ending: Ending | None) -> None:
        """The driver ends: Prometheus shall not look for it."""
        self.close()

    def close(self) -> None:
        """Free the port, and remove the files; more than once does nothing."""
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._open.close()

    def _do(self, change: Callable[..., object], *args: object) -> None:
        def locked() -> None:
            with self._metrics.lock:
                change(*args)

        self._worker.submit(locked).add_done_callback(_log_error)

    def _publish(self, paths: SweepPaths) -> None:
        from results.metrics.collector import SweepCollector
        from results.metrics.server import Target, TextFile

        registry = SweepCollector(self._metrics).registry()
        storage, name = _registration(paths)
        if self._server is not None:
            self._server.start(registry)
            address = f"{_reachable(self._spec.monitoring.host)}:{self._server.port}"
            self._open.callback(Target(storage, name, address).close)
            log.info("metrics at %s", address)
        if self._spec.monitoring.textfile is not None:
            text = TextFile(Path(self._spec.monitoring.textfile), name, registry)
            text.start()
            self._open.callback(text.close)


def _server(monitoring: MonitoringSpec, paths: SweepPaths) -> MetricsServer:
    """The server; a stage takes any free port if one that runs beside it has the port already."""
    from results.metrics.server import MetricsServer

    try:
        return MetricsServer(monitoring)
    except UserError as e:
        if pipeline_of(paths.root) is None or monitoring.port == 0:
            raise
        log.warning("%s: stage %s takes a free port", e, paths.name)
        return MetricsServer(monitoring.model_copy(update={"port": 0}))


def _registration(paths: SweepPaths) -> tuple[Path, str]:
    """The folder of entries, and the name of a sweep's: that of a stage has its pipeline's."""
    pipeline = PipelinePaths(paths.storage.root.parent)
    if not pipeline.is_pipeline:
        return paths.storage.targets, paths.name
    return pipeline.root.parent / paths.storage.targets.name, f"{pipeline.name}.{paths.name}"


def _reachable(host: str) -> str:
    """The address by which Prometheus reaches the driver."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{name}]" if ":" in name else name


def _log_error(done: object) -> None:
    """A number that cannot be had must not end the sweep."""
    error = done.exception() if not done.cancelled() else None  # type: ignore[attr-defined]
    if error is not None:
        log.warning("monitoring: %s", error)
