"""A real sweep, Prometheus and Alertmanager: all panels have data, and alerts reach a webhook."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.cluster import ENV
from tests.waiting import wait_for
from tuning.deploy.monitoring import panels

pytestmark = [
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("prometheus-alertmanager")),
        reason="needs prometheus and prometheus-alertmanager",
    ),
]
SWEEP = """
name: watched
trainable: tests/cluster/watched.py:Watched
metric: loss
space: {x: {uniform: [0, 1]}}
scheduler: {name: asha, max_t: 100000, grace_period: 4, reduction_factor: 2}
fixed: {stall: STALL}
budget: {trials: 1, time: 1h}
prices: {cpu_hour: 1}
checkpoint: {every: 2}
tracking: {name: none}
monitoring: {port: 0}
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Hook:
    """A webhook that keeps the names of the alerts that it gets."""

    def __init__(self) -> None:
        self.firing: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in said["alerts"]:
                    if alert["status"] == "firing":
                        outer.firing.add(alert["labels"]["alertname"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class Watching:
    """Prometheus and Alertmanager in a folder, and the webhook."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.hook, self._stack = folder, Hook(), stack
        stack.callback(self.hook.http.server_close)
        stack.callback(self.hook.http.shutdown)
        self._port, alerts = free_port(), free_port()
        hook = f"http://127.0.0.1:{self.hook.http.server_port}/"
        self.tune(
            *("monitor", "monitoring", "--storage", "sweeps", "--webhook", hook),
            *("--alertmanager", f"127.0.0.1:{alerts}", "--interval", "2s", "--group-wait", "1s"),
            *("--stalled", "45s", "--down", "15s", "--failures", "1"),
        ).wait()
        listen = "--web.listen-address=127.0.0.1:"
        files = ["--config.file=monitoring/prometheus.yml", "--storage.tsdb.path=tsdb"]
        self.start("prometheus", *files, f"{listen}{self._port}")
        files = ["--config.file=monitoring/alertmanager.yml", "--storage.path=alerts"]
        manager = ["prometheus-alertmanager", *files, "--cluster.listen-address="]
        self.start(*manager, f"{listen}{alerts}")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        name = self.folder / f"{Path(command[0]).name}.log"
        log = self._stack.enter_context(name.open("ab"))
        process = subprocess.Popen(
            command, cwd=self.folder, env=ENV, stdout=log, stderr=log, start_new_session=True
        )
        self._stack.callback(end, process)
        return process

    def tune(self, *args: str) -> subprocess.Popen[bytes]:
        return self.start(sys.executable, "-m", "tuning", *args)

    def ask(self, query: str) -> list[dict[str, Any]]:
        text = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{text}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return found

    def empty_panels(self) -> list[str]:
        every = [(row, p) for row, members in panels().items() for p in members]
        return [
            f"{row}: {panel['title']}: {query}"
            for row, panel in every
            for query in panel["queries"].values()
            if not self.ask(query.replace("$sweep", ".*").replace("$__rate_interval", "1m"))
        ]

    def raised(self, alert: str) -> None:
        wait_for(lambda: alert in self.hook.firing)


def end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    (tmp_path / "tests" / "cluster").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("watched.py"), tmp_path / "tests" / "cluster")
    (tmp_path / "watched.yaml").write_text(SWEEP.replace("STALL", str(tmp_path / "stall")))
    with ExitStack() as stack:
        yield Watching(tmp_path, stack)


def kill_worker(folder: Path) -> None:
    """Kill the process that writes the trial's log, as the memory killer does."""
    logs = sorted((folder / "sweeps/watched/trials/t0000/logs").glob("attempt_*/rank_0.log"))
    pid = int(logs[-1].read_text().split("pid")[1].split()[0])
    psutil.Process(pid).kill()


def test_all_panels_have_data_and_alerts_arrive(watching: Watching) -> None:
    driver = watching.tune("run", "watched.yaml")
    wait_for(lambda: bool(watching.ask("rate(tune_train_steps_total[1m]) > 0")))
    wait_for(lambda: not watching.empty_panels())
    assert "AllTrialsFailing" not in watching.hook.firing
    wait_for(lambda: not watching.ask('ALERTS{alertstate="firing"}'))  # a slow start
    watching.hook.firing.clear()
    (watching.folder / "stall").touch()
    watching.raised("TrainingStalled")
    (watching.folder / "stall").unlink()
    kill_worker(watching.folder)
    watching.raised("AllTrialsFailing")
    driver.kill()
    watching.raised("DriverDown")
