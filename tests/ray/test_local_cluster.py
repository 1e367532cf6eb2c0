"""What a sweep on a cluster of its own leaves on the disk, and opens while it runs."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_trials
from tests.ray.conftest import ENV, LONGEST_S
from tests.ray.leaky import CANARIES

KINDS = ["well", "raises", "is_fatal", "aborts"]
SECRETS = [
    form
    for value in (*CANARIES.values(), "canary-db-04fe")
    for form in (value.encode(), b64encode(f"me:{value}".encode())[4:-4])
]


@dataclass
class Run:
    """Two sessions of a sweep: the first was killed, the second finished it.

    Attributes:
        left: folders for Ray's files that the killed driver left behind.
        leaks: files with a secret, at any time.
        listeners, arguments, core_limits, modes: seen while it ran.
    """

    home: Path
    temporary: Path
    left: list[Path] = field(default_factory=list)
    leaks: set[str] = field(default_factory=set)
    listeners: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)
    core_limits: set[int] = field(default_factory=set)
    modes: set[str] = field(default_factory=set)

    @property
    def paths(self) -> SweepPaths:
        return SweepPaths(self.home / "sweeps" / "leaky")

    def tune(self, *args: str, crash_at: str = "") -> int:
        """Run the program; look at its processes and files again and again."""
        environment = {k: v for k, v in ENV.items() if not k.startswith("RAY_AUTH")}
        environment |= {**CANARIES, "HOME": str(self.home), "RAY_TMPDIR": str(self.temporary)}
        process = subprocess.Popen(
            [sys.executable, "-m", "tuning", *args],
            cwd=self.home,
            stdout=subprocess.DEVNULL,
            env={**environment, "TUNE_CRASH_AT": crash_at, "RAY_ADDRESS": ""},
        )
        deadline = time.monotonic() + LONGEST_S
        while process.poll() is None and time.monotonic() < deadline:
            self._look(process.pid)
            time.sleep(0.7)
        self._look_at_files()
        return process.wait(1)

    def _look(self, driver: int) -> None:
        with suppress(psutil.Error):
            main = psutil.Process(driver)
            for process in [main, *main.children(recursive=True)]:
                with suppress(psutil.Error):
                    self._look_at_process(process)
        self._look_at_files()

    def _look_at_process(self, process: psutil.Process) -> None:
        command = " ".join(process.cmdline())
        name = process.name()
        self.arguments.add(command)
        if "ray::" in command or "tracking_process" in command:  # the driver needs a moment
            self.core_limits.add(process.rlimit(psutil.RLIMIT_CORE)[0])
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                self.listeners.add(f"{connection.laddr.ip} {name}")

    def _look_at_files(self) -> None:
        for folder in self.temporary.iterdir():
            with suppress(FileNotFoundError):
                self.modes.add(oct(stat.S_IMODE(folder.stat().st_mode)))
        for root in (self.temporary, self.home):
            for file in root.rglob("*"):
                with suppress(OSError):  # a socket, or just removed
                    text = file.read_bytes() if file.is_file() else b""
                    if any(secret in text for secret in SECRETS):
                        self.leaks.add(str(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("home")
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as temporary:  # short: see sockets
        run = Run(home, Path(temporary))
        sweep = {
            "name": "leaky",
            "trainable": "tests.ray.leaky:Leaky",
            "metric": "loss",
            "space": {"kind": {"grid_search": KINDS}},
            "scheduler": {"name": "none"},
            "resources": {"workers": 2, "cpus_per_worker": 0.5},
            "checkpoint": {"every": 1},
            "failure": {"max_retries": 0},
            "redact": ["MY_LICENSE"],
        }
        (home / "leaky.yaml").write_text(json.dumps(sweep))
        assert run.tune("run", "leaky.yaml", crash_at="driver:answered:2") < 0
        run.left = list(run.temporary.iterdir())
        assert run.tune("resume", "leaky") == 0
        yield run


def record(run: Run, kind: str) -> TrialRecord:
    return next(r for r in read_trials(run.paths) if r.params["kind"] == kind)


def test_no_secret_reaches_the_disk(run: Run) -> None:
    assert run.leaks == set()
    log = run.paths.trial(record(run, "well").id).log(record(run, "well").attempts[-1].number, 1)
    for name in CANARIES:  # the workers have them all the same
        assert re.search(rf"^step 4: {name} is (\w+://me:)?\*\*\*", log.read_text(), re.MULTILINE)
        assert re.search(rf"^{name} (\w+://me:)?\*\*\*", log.read_text(), re.MULTILINE)


def test_last_words_and_reasons_of_failures_are_kept_redacted(run: Run) -> None:
    aborted = record(run, "aborts")
    last = aborted.attempts[-1].number
    logs = [run.paths.trial(aborted.id).log(last, rank).read_text() for rank in range(2)]
    assert any("last words ***" in log for log in logs)
    assert "cannot log in with ***" in (record(run, "raises").reason or "")
    assert "no memory for ***" in (record(run, "is_fatal").attempts[-1].error or "")


def test_command_lines_hold_no_secret(run: Run) -> None:
    assert any("raylet" in line for line in run.arguments)
    text = "\n".join(run.arguments).encode()
    assert [secret for secret in SECRETS if secret in text] == []


def test_every_listener_is_on_the_loopback_interface(run: Run) -> None:
    assert any("gcs_server" in listener for listener in run.listeners)
    assert any("RayTrainWo" in listener for listener in run.listeners)
    loopback = ("127.", "::1 ", "::ffff:127.")
    assert [found for found in run.listeners if not found.startswith(loopback)] == []


def test_no_process_leaves_a_core_dump(run: Run) -> None:
    assert run.core_limits == {1}


def test_files_of_ray_are_private_and_removed(run: Run) -> None:
    assert run.modes == {"0o700"}
    assert len(run.left) == 1  # of the killed driver; the next one removes it
    assert [str(path) for path in run.temporary.rglob("*")] == []
    assert not (run.home / ".ray").exists()
    sessions = list(run.paths.ray_logs.iterdir())
    assert len(sessions) == 2
    for session in sessions:
        assert (session / "raylet.out").stat().st_size > 0
        assert stat.S_IMODE((session / "raylet.out").stat().st_mode) == 0o600
    assert os.getuid() == run.paths.ray_logs.stat().st_uid
