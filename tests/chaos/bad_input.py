"""Bad input: mutated and hostile sweep files, and sweep folders that are damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.outcome import Outcome
from tests.fuzz import files, folders, hostile, records


def mutated_files(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Each file loads, or is refused with a message."""
    for name in names:
        yield _checked(name, lambda rng: files.check(files.mutated(rng), folder))


def hostile_files(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Each file loads, or is refused with a message, in time."""
    for name in names:
        yield _checked(name, lambda rng: hostile.check(hostile.hostile(rng), folder))


def damaged_folders(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """`ls`, `show`, `best` and a resume answer or print one line; intact files stay."""
    sweep = folders.make_sweep(folder / "whole")
    for name in names:
        yield _checked(name, lambda rng, at=folder / name: _damaged(sweep, at, rng))


def damaged_records(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Each command answers as without damage, says what it repaired, or names what is lost.

    One case in ten also runs `report`, `average`, `export` and `compare`.
    """
    sweeps = records.make_sweeps(folder / "whole")
    for name in names:
        rng, uses = random.Random(int(name)), int(name) % 10 == 0
        try:
            found = records.check(sweeps[int(name) % 3], folder / name, rng, uses=uses)
            yield Outcome(name, problems=tuple(found))
        except Exception as e:  # noqa: BLE001 - any exception is a finding
            yield Outcome(name, problems=(repr(e),))


def _damaged(sweep: folders.SweepPaths, at: Path, rng: random.Random) -> None:
    folders.check(folders.damaged(sweep, at, rng))
    shutil.rmtree(at)


def _checked(name: str, check: Callable[[random.Random], object]) -> Outcome:
    try:
        check(random.Random(int(name)))
    except Exception as e:  # noqa: BLE001 - any exception is a finding
        return Outcome(name, problems=(repr(e),))
    return Outcome(name)
