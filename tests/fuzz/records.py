"""Records of sweeps damaged at random: each command answers as before, says a word, or refuses.

Silence with another answer is the failure that this looks for.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from results.analysis.dataframes import load
from results.paths import SweepPaths
from results.records.reports import Report
from results.records.spec_file import read_spec
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from tests.cli.trained import DIGITS
from tests.fuzz.files import flip_bit, truncate
from tests.tuning.simulate import new_sweep, outcome
from tests.tuning.trained import DirectChannel, train_all
from trainables.job import Answer
from trainables.launch.run_trial import run_local
from tuning.cli.app import main
from tuning.controller.session import open_sweep

SPEC = {
    **DIGITS,
    "space": {"learning_rate": {"loguniform": [0.0001, 0.03]}},
    "scheduler": {"name": "asha", "grace_period": 2, "max_t": 4, "time_attr": "step"},
    "budget": {"trials": 5},
    "resources": {"workers": 1},
    "checkpoint": {"keep": 9},  # a thread deletes older ones, also while the folder is copied
}
KILLED_IN, KILLED_AT = "t0003", 3
_LOCKS = shutil.ignore_patterns("owner.lock*", ".*")
LOOKS = (("ls",), ("show", "mine"), ("best", "mine", "--json"))
USES = (
    ("report", "mine"),
    ("average", "mine", "--top", "2", "--method", "uniform"),
    ("export", "mine", "--to", "pt2", "--no-verify"),
    ("compare", "mine", "mine"),
)


@dataclass(frozen=True)
class Answered:
    """What a command gave: its exit code, what it answers, and everything it said."""

    code: int
    answer: Any
    said: str


@dataclass
class Sweep:
    """An undamaged sweep, older states of its folder, and the answers of each command.

    Attributes:
        tails: folders without the last reports of the attempt that was running.
    """

    folder: Path
    older: list[Path]
    tails: list[Path]
    answers: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)

    def answers_to(self, command: tuple[str, ...], scratch: Path) -> list[Any]:
        """The answers without damage; several if reports of a running attempt may be lost."""
        if command not in self.answers:
            made = []
            for folder in (self.folder, *self.tails):
                shutil.copytree(folder, scratch / "mine")
                found = run(command, scratch)
                assert found.code == 0, found
                made.append(found.answer)
                shutil.rmtree(scratch)
            self.answers[command] = made
        return self.answers[command]


def make_sweeps(folder: Path) -> list[Sweep]:
    """A finished sweep, one whose driver was killed, and one that was stopped in order."""
    spec, killed = SweepSpec.model_validate(SPEC), folder / "killed"
    older: list[Path] = []
    paths = new_sweep(spec, folder / "finished")

    def keep(report: Report, trial: str) -> None:
        shutil.copytree(paths.root, at := folder / "older" / f"{len(older)}", ignore=_LOCKS)
        older.append(at)
        if (trial, report.step) == (KILLED_IN, KILLED_AT):
            shutil.copytree(at, killed / "mine")

    with open_sweep(paths, spec) as run:
        while (job := run.next_trial()) is not None:
            run_local(job, _Keeping(DirectChannel(run, job.trial_id), job.trial_id, keep))
            run.on_ended(job.trial_id)
        run.lifecycle.release()
    before = older[: next(i for i, o in enumerate(older) if _steps(o) == KILLED_AT)]
    stopped = folder / "stopped" / "mine"
    shutil.copytree(killed / "mine", stopped)
    with open_sweep(SweepPaths(stopped), spec) as run:
        run.lifecycle.release()
    tails = []
    for kept in range(KILLED_AT):
        shutil.copytree(killed / "mine", tail := folder / "tails" / str(kept))
        reports = SweepPaths(tail).trial(KILLED_IN).reports
        reports.write_bytes(b"".join(reports.read_bytes().splitlines(keepends=True)[:kept]))
        tails.append(tail)
    return [
        Sweep(paths.root, older, []),
        Sweep(killed / "mine", before, tails),
        Sweep(stopped, [*before, killed / "mine"], []),
    ]


@dataclass(frozen=True)
class _Keeping:
    """Passes reports on, and keeps the folder as it is before each decision."""

    channel: DirectChannel
    trial: str
    keep: Callable[[Report, str], None]

    def report(self, report: Report) -> Answer:
        self.keep(report, self.trial)
        return self.channel.report(report)


def _steps(folder: Path) -> int:
    reports = SweepPaths(folder).trial(KILLED_IN).reports
    return len(reports.read_bytes().splitlines()) if reports.exists() else 0


def damage(sweep: Sweep, root: Path, rng: random.Random) -> list[str]:
    """Damage one or two files of a copy; returns what was done, each with the file's path."""
    files = sorted(p for p in root.rglob("*") if p.is_file())
    records = [p for p in files if "checkpoints" not in p.parts and "logs" not in p.parts]
    done = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        file = rng.choice(records if rng.random() < 0.8 else files)
        if file.exists():
            act = rng.choice(ACTS)
            done.append(f"{act.__name__.strip('_')} {act(file, sweep, root, rng)}")
    return done


def _delete(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    file.unlink()
    return _name(file, root)


def _delete_trial(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    if "trials" not in file.relative_to(root).parts:
        return _delete(file, sweep, root, rng)
    trial = root / "trials" / file.relative_to(root).parts[1]
    shutil.rmtree(trial)
    return _name(trial, root)


def _truncate(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    file.write_bytes(truncate(file.read_bytes(), rng))
    return _name(file, root)


def _flip(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    if data := file.read_bytes():
        file.write_bytes(flip_bit(data, rng))
    return _name(file, root)


def _swap(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    others = [p for p in root.glob(f"trials/*/{file.name}") if p != file]
    if not others:
        return _truncate(file, sweep, root, rng)
    other = rng.choice(sorted(others))
    mine, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(mine)
    return f"{_name(file, root)} {_name(other, root)}"


def _roll_back(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    name, now = file.relative_to(root), file.read_bytes()
    known = [old / name for old in sweep.older if (old / name).is_file()]
    if others := [old for old in known if old.read_bytes() != now]:
        shutil.copyfile(rng.choice(others), file)
    return _name(file, root)


def _duplicate_line(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    lines = file.read_bytes().splitlines(keepends=True)
    if lines:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
        file.write_bytes(b"".join(lines))
    return _name(file, root)


def _zero(file: Path, sweep: Sweep, root: Path, rng: random.Random) -> str:
    data = file.read_bytes()
    start = rng.randrange(len(data) + 1)
    length = rng.randrange(len(data) - start + 1)
    file.write_bytes(data[:start] + bytes(length) + data[start + length :])
    return _name(file, root)


ACTS = (_delete, _delete_trial, _truncate, _flip, _swap, _roll_back, _duplicate_line, _zero)


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def check(sweep: Sweep, storage: Path, rng: random.Random, *, uses: bool) -> Iterator[str]:
    """Damage a copy of a sweep; yields what commands did wrong, one line each."""
    shutil.copytree(sweep.folder, root := storage / "mine")
    done = damage(sweep, root, rng)
    for command in (*LOOKS, ("load",), *(USES if uses else ()), ("resume",)):
        expected = sweep.answers_to(command, storage.with_name("scratch"))
        if problem := _judged(run(command, storage), expected, done):
            yield f"{done}: {' '.join(command)}: {problem}"
    shutil.rmtree(storage)


def _judged(found: Answered, expected: list[Any], done: list[str]) -> str | None:
    tail = any(f"{KILLED_IN}/reports.jsonl" in one for one in done)
    if found.code == 0 and found.answer in expected[: None if tail else 1]:
        return None
    named = {part for one in done for name in one.split()[1:] for part in (name, _short(name))}
    if found.code not in (0, 2, 3):
        return f"exit code {found.code}: {found.said}"
    if not any(name in found.said for name in named):
        return f"exit code {found.code} without a name, and the answer {found.answer}: {found.said}"
    return None


def _short(name: str) -> str:
    """The part of a file's path that a message needs: the trial's id, or the file's name."""
    parts = name.split("/")
    return parts[1] if parts[0] == "trials" else parts[-1]


def run(command: tuple[str, ...], storage: Path) -> Answered:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(err)
    logging.getLogger().addHandler(handler)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code, answer = _ran(command, storage, out, err)
    finally:
        logging.getLogger().removeHandler(handler)
    said = (out.getvalue() if command[0] == "resume" else "") + err.getvalue()
    return Answered(code, answer if code == 0 else None, said.replace(str(storage), ""))


def _ran(
    command: tuple[str, ...], storage: Path, out: io.StringIO, err: io.StringIO
) -> tuple[int, Any]:
    try:
        if command == ("resume",):
            return 0, _resumed(SweepPaths(storage / "mine"), out)
        if command == ("load",):
            found = load(storage / "mine").trials[["trial", "state", "value", "step"]]
            return 0, found.to_json()
    except UserError as e:
        err.write("\n".join(e.problems))
        return e.exit_code, None
    argv = ["tune", *command, "--storage", str(storage)]
    try:  # so wide that the length of the folder's name wraps no line
        with patch.object(sys, "argv", argv), patch.dict(os.environ, COLUMNS="250"):
            main()
    except SystemExit as e:
        return int(e.code or 0), _answer(command, storage, out.getvalue())
    raise AssertionError("the program did not end")


def _answer(command: tuple[str, ...], storage: Path, text: str) -> Any:
    """The part of a command's output that must be as without damage."""
    plain = text.replace(str(storage), "")
    if command[0] == "show":
        return None  # see `load`; the table has times that go on
    of = slice(4 if command[0] == "compare" else None)  # the other columns have times too
    return [line.split()[of] for line in plain.splitlines()]


def _resumed(paths: SweepPaths, out: io.StringIO) -> Any:
    with open_sweep(paths, read_spec(paths)) as run:
        out.write("\n".join(run.repaired))
        train_all(run)
        run.lifecycle.release()
        return [(*row[:4], row[5]) for row in outcome(run)]
