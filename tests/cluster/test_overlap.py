"""Attempts at one sweep on two hosts, whose mounts of one folder see changes late, as NFS does.

A host's mount (bindfs) caches attributes and names, also of files that did not exist, and passes
locks on. Unlike NFS it shows an old size even after a file is opened.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from results.paths import SweepPaths
from results.records.trial import read_reports, read_trials
from tests.chaos.invariants import lost_steps
from tests.cluster.hosts import Host
from tests.cluster.submitted import SWEEP
from tests.cluster.sweep import LONGEST_S

pytestmark = [
    pytest.mark.skipif(shutil.which("bindfs") is None, reason="apt-get install bindfs"),
    pytest.mark.timeout(900),
]
LATE_S = 10
CACHED = ("attr_timeout", "entry_timeout", "negative_timeout")
STEPS = 40


class Shared:
    """A folder, which both hosts have mounted under one name."""

    def __init__(self, folder: Path) -> None:
        self._truth, self._mounted = folder / "truth", folder / "mounted"
        self._truth.mkdir()
        self._mounted.mkdir()
        (self._truth / "sweep.yaml").write_text(SWEEP.format(name="overlap", steps=STEPS))
        self.hosts = [Host(number, folder) for number in range(2)]
        cached = ",".join(f"{name}={LATE_S}" for name in CACHED)
        for host in self.hosts:
            locks = ("--multithreaded", "--enable-lock-forwarding")
            host.run("bindfs", *locks, "-o", cached, str(self._truth), str(self._mounted))
        self.paths = SweepPaths(self._truth / "sweeps" / "overlap")

    def attempt(self, number: int) -> Attempt:
        """`tune run --or-resume` on a host."""
        where = ["--or-resume", "--storage", str(self._mounted / "sweeps")]
        command = ["-m", "tuning", "run", str(self._mounted / "sweep.yaml"), *where]
        log = self._truth / f"attempt-{len([*self._truth.glob('*.log')])}.log"
        return Attempt(self.hosts[number], [sys.executable, *command], log)

    def wait_for_step(self, number: int, by: Attempt, attempt: int) -> None:
        """Wait until an attempt at the trial has reported a step."""
        deadline = time.monotonic() + LONGEST_S
        while True:
            reports = [r for t in self.paths.trial_ids() for r in read_reports(self.paths.trial(t))]
            if any(r.step >= number and r.attempt == attempt for r in reports):
                return
            assert by.process.poll() is None, by.end()
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def check(self, attempts: int) -> None:
        """The sweep ended as if nothing had happened."""
        [record] = read_trials(self.paths)
        assert [r.step for r in read_reports(self.paths.trial(record.id))] == [*range(1, STEPS + 1)]
        assert len(record.attempts) == attempts
        assert lost_steps(self.paths) <= attempts - 1, "an interval of a checkpoint each"


class Attempt:
    """One command."""

    def __init__(self, host: Host, command: list[str], log: Path) -> None:
        self.host, self._log = host, log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                host.inside(*command), env=host.env, stdout=output, stderr=output
            )

    def signal(self, signum: int) -> None:
        """Send a signal to the driver alone, not to its workers."""
        [driver] = psutil.Process(self.process.pid).children()
        driver.send_signal(signum)
        if signum == signal.SIGCONT:
            self.process.send_signal(signum)  # nsenter stops with its child

    def end(self) -> tuple[int, str]:
        """Its exit code and output."""
        return self.process.wait(LONGEST_S), self._log.read_text()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    try:
        yield made
    finally:
        for host in made.hosts:
            host.power_off()


def test_one_of_two_attempts_drives(shared: Shared) -> None:
    both = [shared.attempt(0), shared.attempt(1)]
    while all(attempt.process.poll() is None for attempt in both):
        time.sleep(0.2)
    both.sort(key=lambda attempt: attempt.process.poll() is None)
    refused, drives = both
    code, said = refused.end()
    assert code == 2, said
    assert "driven by process" in said or "exists; continue it" in said
    shared.wait_for_step(1, drives, attempt=1)
    again = shared.attempt(shared.hosts.index(refused.host))
    code, said = again.end()
    assert code == 2, said
    assert f"on {drives.host.name}; wait for it" in said
    code, said = drives.end()
    assert code == 0, said
    shared.check(attempts=1)


def test_frozen_attempt_writes_nothing_after_it_is_taken_over(shared: Shared) -> None:
    first = shared.attempt(0)
    shared.wait_for_step(3, first, attempt=1)
    first.signal(signal.SIGSTOP)
    second = shared.attempt(1)
    shared.wait_for_step(1, second, attempt=2)
    first.signal(signal.SIGCONT)
    code, said = first.end()
    assert code == 2, said
    assert "taken over by process" in said
    assert f"on {second.host.name}, so this driver stops and writes nothing more" in said
    code, said = second.end()
    assert code == 0, said
    assert "on host0 drove it; waiting for a heartbeat" in said
    shared.check(attempts=2)


def test_killed_attempt_is_taken_over(shared: Shared) -> None:
    first = shared.attempt(0)
    shared.wait_for_step(3, first, attempt=1)
    first.signal(signal.SIGKILL)
    second = shared.attempt(1)
    assert first.end()[0] == -signal.SIGKILL
    code, said = second.end()
    assert code == 0, said
    shared.check(attempts=2)
