"""Storage that fails for good while a sweep runs: each write of a record, and a small full disk."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results.paths import SweepPaths
from results.storage.fault_injection import VARIABLE
from tests.chaos.driver_kills import INTERVAL, SWEEP
from tests.chaos.invariants import Case, lost_steps, violations
from tests.chaos.outcome import Outcome
from tests.chaos.recovery import recovery_s
from tests.chaos.session import Session, problems_of

ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EMFILE")
WRITES = {
    "trial.json:written": 3,
    "records.jsonl:written": 3,
    "reports.jsonl:written": 4,
    "manifest.json:written": 2,
    "state.json:written": 1,
    "study.journal:written": 2,
}
"""The write of each record, and how often it succeeds in a session before it fails."""
LIMITED = SWEEP + "tracking: {name: none}\n"
SMALL = LIMITED.replace("trials: 8", "trials: 20").replace(
    f"every: {INTERVAL}", f"every: {INTERVAL}, wait_for_room: 5"
)
SIZES = ("size=1600k", "size=8m")


def writes(count: int) -> list[str]:
    """Every record; each sweep meets all errors, one a session."""
    return list(WRITES)[:count]


def failing_writes(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Let the writes of one record fail, in one session for each error; then run to the end."""
    (folder / "digits.yaml").write_text(LIMITED)
    Session(folder, "run", "digits.yaml", "--name", "whole").end()
    for name in names:
        sweep = name.partition(":")[0].replace(".", "-")
        problems = list(_failing(folder, name, sweep))
        case = Case(_paths(folder, sweep), _paths(folder, "whole"), interval=INTERVAL)
        yield _outcome(name, case, problems, len(ERRORS))


def _paths(folder: Path, sweep: str) -> SweepPaths:
    return SweepPaths(folder / "sweeps" / sweep)


def _failing(folder: Path, point: str, sweep: str) -> Iterator[str]:
    command = ["run", "digits.yaml", "--name", sweep]
    # on a full disk a checkpoint waits, and then its trial fails: row A2
    for error in ERRORS[2:] if point.startswith("manifest") else ERRORS:
        passed = WRITES[point]
        if point.startswith("state") and command[0] == "run":
            passed += 1  # of the folder that is made
        fault = {VARIABLE: f"{point}:{passed + 1}={error}"}
        session = Session(folder, *command, env=fault)
        yield from problems_of(session, f"{point} {error}", codes=(1, 2))
        if "then run tune resume" not in session.said:
            yield f"{point} {error}: no advice in {session.said[-300:]!r}"
        command = ["resume", sweep]
    yield from problems_of(Session(folder, "resume", sweep), f"{point}, at last", codes=(0,))


def small_disks(count: int) -> list[str]:
    """One case."""
    return ["tmpfs"][:count]


def full_disks(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Run a sweep on a disk that is too small for it, and again once it is larger; needs root.

    Trials whose checkpoints find no room have failed, so it differs from an undisturbed one.
    """
    (folder / "digits.yaml").write_text(SMALL)
    for name in names:
        with _mounted(SIZES[0]) as disk:
            problems = list(_on_a_full_disk(folder, disk))
            yield _outcome(
                name, Case(SweepPaths(disk / "small"), None, interval=INTERVAL), problems, 1
            )


def _on_a_full_disk(folder: Path, disk: Path) -> Iterator[str]:
    run = Session(folder, "run", "digits.yaml", "--name", "small", "--storage", str(disk))
    yield from problems_of(run, "full disk", codes=(1, 2))
    if "No space left on device" not in run.said:
        yield f"full disk: not named in {run.said[-300:]!r}"
    _mount("-o", f"remount,{SIZES[1]}", str(disk))
    again = Session(folder, "resume", str(disk / "small"))
    yield from problems_of(again, "with more room", codes=(0,))


@contextmanager
def _mounted(size: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="chaos-disk-") as disk:
        _mount("-t", "tmpfs", "-o", size, "tmpfs", disk)
        try:
            yield Path(disk)
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)


def _mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True)


def _outcome(name: str, case: Case, problems: list[str], injected: int) -> Outcome:
    found = (*problems, *violations(case))
    return Outcome(name, injected, lost_steps(case.paths), recovery_s(case.paths), found)
