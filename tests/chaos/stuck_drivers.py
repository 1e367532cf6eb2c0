"""Drivers that are stuck, alone or when a signal comes, and drivers whose terminal is gone."""

from __future__ import annotations

import os
import pty
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from results.paths import SweepPaths
from results.storage.fault_injection import VARIABLE
from tests.chaos.driver_kills import INTERVAL, SWEEP
from tests.chaos.invariants import Case, finished_trials, lost_steps, violations
from tests.chaos.outcome import Outcome
from tests.chaos.recovery import recovery_s
from tests.chaos.session import Session, problems_of

STOP_S = 15.0
"""A stuck session ends within this time of a signal (seconds)."""
LOOP = {VARIABLE: "driver:heard:6=hang"}
_QUIET_S = 5.0


def cases(count: int) -> list[str]:
    """Each way in which a driver can be stuck or lose its terminal."""
    return list(_CASES)[:count]


def ended_drivers(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """End a driver in an unusual way, then resume: the sweep equals an undisturbed one."""
    (folder / "digits.yaml").write_text(f"{SWEEP}tracking: {{name: none}}\n")
    Session(folder, "run", "digits.yaml", "--name", "whole").end()
    whole = SweepPaths(folder / "sweeps" / "whole")
    for number, name in enumerate(names):
        paths = SweepPaths(folder / "sweeps" / f"stuck-{number}")
        problems = list(_CASES[name](folder, paths))
        before = finished_trials(paths)
        problems += problems_of(Session(folder, "resume", paths.name), "resumed", codes=(0,))
        problems += violations(Case(paths, whole, before, INTERVAL))
        yield Outcome(name, 1, lost_steps(paths), recovery_s(paths), tuple(problems))


def _stuck_loop(folder: Path, paths: SweepPaths) -> Iterator[str]:
    session = Session(folder, "run", "digits.yaml", "--name", paths.name, env=LOOP)
    yield from problems_of(session, "stuck", codes=(1,))
    yield from _unexplained(session, paths)


def _stuck_loop_and_signal(folder: Path, paths: SweepPaths) -> Iterator[str]:
    session = Session(folder, "run", "digits.yaml", "--name", paths.name, env=LOOP)
    _wait_until_quiet(session, paths)
    yield from _late(session, signal.SIGTERM)
    yield from problems_of(session, "stopped", codes=(130,))
    yield from _unexplained(session, paths)


def _storage_that_hangs(folder: Path, paths: SweepPaths) -> Iterator[str]:
    """The write of a record does not return, in a callback of Ray Tune."""
    hangs = {VARIABLE: "trial.json:written:2=hang"}
    session = Session(folder, "run", "digits.yaml", "--name", paths.name, env=hangs)
    _wait_until_quiet(session, paths)
    yield from _late(session, signal.SIGINT)
    yield from problems_of(session, "stopped", codes=(130,))
    yield from _unexplained(session, paths)


def _terminal_gone(folder: Path, paths: SweepPaths) -> Iterator[str]:
    ours, terminal = pty.openpty()
    session = Session(
        folder,
        "run",
        "digits.yaml",
        "--name",
        paths.name,
        wrapper=("setsid", "--ctty"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    session.until(paths.trial("t0000").reports)
    os.close(ours)
    yield from problems_of(session, "terminal gone", codes=(130,))


_CASES: dict[str, Callable[[Path, SweepPaths], Iterator[str]]] = {
    "the loop hangs": _stuck_loop,
    "the loop hangs, SIGTERM": _stuck_loop_and_signal,
    "the storage hangs, SIGINT": _storage_that_hangs,
    "the terminal is gone": _terminal_gone,
}


def _wait_until_quiet(session: Session, paths: SweepPaths) -> None:
    """Wait until trials have reported, and have not for some seconds."""
    reports = paths.trial("t0000").reports
    session.until(reports)
    while session.process.poll() is None and time.time() - reports.stat().st_mtime < _QUIET_S:
        time.sleep(0.1)


def _late(session: Session, signum: int) -> Iterator[str]:
    session.process.send_signal(signum)
    asked = time.monotonic()
    session.end()
    if (took := time.monotonic() - asked) > STOP_S:
        yield f"ended {took:.0f} s after the signal"


def _unexplained(session: Session, paths: SweepPaths) -> Iterator[str]:
    if "stuck, no progress for" not in session.said or "tune resume" not in session.said:
        yield f"not explained: {session.said[-300:]!r}"
    if "all threads" not in (paths.log.read_text() if paths.log.exists() else ""):
        yield "no stacks"
    if "was killed" in session.said:
        yield f"explained twice: {session.said[-300:]!r}"
