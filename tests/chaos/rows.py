"""The rows of `make chaos`: each does its fault many times and counts what came of it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from results.faultpoints import POINTS
from tests.chaos.invariants import Case, lost_steps, recovery_s, violations
from tests.fuzz import files, folders
from tests.ray.conftest import ENV, HOLD_CLUSTER, Tune
from tests.ray.test_sweeps import DIGITS
from tests.trainables.crash import EVERY

ROOT = Path(__file__).parents[2]


@dataclass
class Row:
    """One line of the table.

    Attributes:
        fault: what was done.
        injected, survived: how often it was done, and to good end.
        lost: steps that were done twice, at most in one trial and attempt.
        recovery_s: longest time to the first report after a resume (seconds).
        problems: what was broken, a line each.
    """

    fault: str
    injected: int = 0
    survived: int = 0
    lost: int = 0
    recovery_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def killed_drivers(folder: Path, count: int, rng: random.Random) -> Row:
    """Row 5: SIGKILL of the driver, at fault points and at random moments, resumed each time."""
    row = Row("5  driver killed (SIGKILL), resumed")
    longer = ["--set", "fixed.epochs=30", "--set", "scheduler.max_t=30"]
    with _cluster() as address:
        tune = Tune(folder, address)
        (folder / "digits.yaml").write_text(DIGITS)
        tune("run", "digits.yaml", "--name", "whole", *longer)
        sweep = 0
        while row.injected < count:
            sweep += 1
            name = f"killed-{sweep}"
            kills = _kill_until_done(tune, name, longer, count - row.injected, rng)
            case = Case(tune.paths(name), tune.paths("whole"), interval=3, database=_mlflow(tune))
            row.injected += kills
            _note(row, violations(case), kills, f"sweep {name}")
            row.lost = max(row.lost, lost_steps(case))
            row.recovery_s = max(row.recovery_s, recovery_s(case))
    return row


def _kill_until_done(tune: Tune, name: str, more: list[str], most: int, rng: random.Random) -> int:
    """Start a sweep, kill it, and resume it until it is over; gives the number of kills."""
    driver = sorted(p for p in POINTS if p.startswith("driver:") and p != "driver:released")
    kills, args = 0, ["run", "digits.yaml", "--name", name, *more]
    while True:
        env = {}
        if kills < most and rng.random() < 0.7:
            env = {"TUNE_CRASH_AT": f"{rng.choice(driver)}:{rng.randint(1, 40)}"}
        process = _start(tune, args, env)
        if kills < most and not env:
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(2.0, 40.0))
            process.kill()
        process.wait()
        if process.returncode == 0:
            return kills
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{name}: exit {process.returncode}")
        kills += 1
        if tune.paths(name).spec.exists():
            args = ["resume", name]


def _start(tune: Tune, args: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuning", *args, "--address", tune.address],
        cwd=tune.cwd,
        env={**ENV, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def _cluster() -> Iterator[str]:
    command = [sys.executable, "-c", HOLD_CLUSTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env=ENV, **pipes) as holder:
        yield holder.stdout.readline().strip()
        holder.stdin.close()


def _mlflow(tune: Tune) -> Path:
    return tune.cwd / "sweeps" / "mlflow.db"


def interrupted_commits(folder: Path, count: int, rng: random.Random) -> Row:
    """Row 6: a crash after each write, fsync and rename of the checkpoint protocol."""
    row = Row("6  crash within a checkpoint or a report")
    prefixes = ("checkpoint:", "manifest.json:", "reports.jsonl:")
    points = [f"{p}:{n}" for p in sorted(POINTS) if p.startswith(prefixes) for n in range(1, 7)]
    chosen = sorted(rng.sample(points, min(count, len(points))))
    command = [sys.executable, "-m", "tests.trainables.crash", str(folder), *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    results = json.loads(done.stdout)
    whole = [(step, metrics) for step, _, metrics in results["whole"]["reports"]]
    for point in chosen:
        run = results[point]
        if run["died"] == 0:  # the trial passes this point less often
            continue
        row.injected += 1
        curve = [(step, metrics) for step, _, metrics in run["after"]["reports"]]
        before = run["before"]
        lost = sum(step > before["newest"] for step, _, _ in before["reports"])
        row.lost = max(row.lost, lost)
        broken = [] if curve == whole and run["resumed"] == 0 else ["I3: another curve"]
        broken += ["I6: more than one interval"] * (lost > EVERY)
        _note(row, broken, 1, point)
    return row


def fuzzed_files(folder: Path, count: int, rng: random.Random) -> Row:
    """Mutated sweep files: loaded, or refused in words."""
    return _fuzz(
        Row("   sweep files mutated"), count, lambda: files.check(files.mutated(rng), folder)
    )


def damaged_folders(folder: Path, count: int, rng: random.Random) -> Row:
    """Rows 7, 8, 18, 19: damaged folders for ls, show, best and resume."""
    sweep = folders.make_sweep(folder / "whole")
    numbers = iter(range(count))
    return _fuzz(
        Row("8  sweep folders damaged"),
        count,
        lambda: folders.check(folders.damaged(sweep, folder / str(next(numbers)), rng)),
    )


def _fuzz(row: Row, count: int, once: Callable[[], bool]) -> Row:
    for number in range(count):
        row.injected += 1
        try:
            once()
        except Exception as e:  # noqa: BLE001 - that is what is looked for
            row.problems.append(f"{row.fault.strip()} number {number}: {e!r}")
        else:
            row.survived += 1
    return row


def _note(row: Row, broken: list[str], times: int, what: str) -> None:
    row.survived += 0 if broken else times
    row.problems += [f"{what}: {line}" for line in broken]
