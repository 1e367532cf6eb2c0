"""Files for Prometheus: where a driver is scraped, and metrics for node_exporter."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from search_spaces.errors import UserError

_PUBLIC_FOLDER, _PUBLIC = 0o755, 0o644
"""Prometheus and node_exporter run as users of their own; nothing in these files is secret."""


class Target:
    """The entry of a running driver in a folder that Prometheus watches (`file_sd_configs`).

    A driver that ends takes its entry away; that of a killed one stays, so that Prometheus knows
    the difference.
    """

    def __init__(self, folder: Path, sweep: str, address: str) -> None:
        self._file = folder / f"{sweep}.json"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(_PUBLIC_FOLDER)
        entry = [{"targets": [address], "labels": {"sweep": sweep}}]
        _replace(self._file, json.dumps(entry, indent=1).encode())

    def close(self) -> None:
        """The driver ends."""
        self._file.unlink(missing_ok=True)


class TextFile:
    """Writes metrics to a file every few seconds, for node_exporter's textfile collector.

    Args:
        folder: of the collector; the file is `tune_<sweep>.prom`.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(
        self, folder: Path, sweep: str, registry: CollectorRegistry, every_s: float = 15.0
    ) -> None:
        self._file, self._registry, self._every_s = folder / f"tune_{sweep}.prom", registry, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="textfile", daemon=True)
        try:
            self.write()
        except OSError as e:
            raise UserError(f"monitoring.textfile: cannot write {self._file} ({e})") from e

    def start(self) -> None:
        """Write in a thread."""
        self._thread.start()

    def write(self) -> None:
        """Replace the file."""
        _replace(self._file, generate_latest(self._registry))

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.write()
            except OSError:  # full for now, perhaps: the file's age says that it is old
                continue

    def close(self) -> None:
        """The driver ends, and its metrics with it."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._file.unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    """Write a file that a reader always finds whole and may read."""
    staged = path.with_suffix(".new")
    staged.write_bytes(content)
    staged.chmod(_PUBLIC)
    staged.replace(path)
