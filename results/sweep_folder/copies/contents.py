"""What belongs to a copy of a sweep, and the order in which it is safe to read and to write it.

A running trial writes its reports before a checkpoint, and both before the record that counts them.
So a copy reads the record first, then the checkpoints, then the reports, and it writes the record
last: nothing in it refers to what it lacks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from results.paths import SweepPaths

THREADS = 8
"""Files that are copied at the same time."""
GROWING = (".jsonl", ".journal", ".log")
_NOT_COPIED = re.compile(r"ray|inbox|owner\.lock.*|records\.jsonl")
"""Names in the sweep folder: caches, commands, the owner, and a log that a restore writes again."""
_NOT_COPIED_ANYWHERE = re.compile(r"\..*|processes\.lock|.*\.damaged")
"""Names at any depth: temporary files, locks, and checkpoints that were found damaged."""


def record_groups(paths: SweepPaths) -> Iterator[list[Path]]:
    """The records of a sweep, without checkpoints and results.

    Yields:
        Files that belong together, in the order of writing; they are read in reverse order.
    """
    p = paths
    single = p.spec, p.evidence, p.study, p.state, p.notes
    common = *single, *p.code.rglob("*"), *p.history.rglob("*")
    yield [f for f in common if f.is_file()]
    for trial in (p.trial(e.name) for e in entries(p.trials)):
        notes = trial.logs.glob("attempt_*/environment.json")
        yield [f for f in (*notes, trial.reports, trial.record) if f.is_file()]


def files_below(root: Path, excluded: Collection[Path]) -> Iterator[Path]:
    """All files of a folder in a sweep that belong to a copy; links are not followed."""
    for entry in entries(root):
        path = Path(entry.path)
        if path in excluded or _NOT_COPIED_ANYWHERE.fullmatch(entry.name) or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from files_below(path, excluded)
        elif entry.is_file():
            yield path


def files_of_sweep(root: Path, excluded: Collection[Path]) -> Iterator[Path]:
    """The same of the whole folder of a sweep or pipeline."""
    for file in files_below(root, excluded):
        if not _NOT_COPIED.fullmatch(file.relative_to(root).parts[0]):
            yield file


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder by name; none if it does not exist."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def read_complete(file: Path) -> bytes:
    """The content of a file; of one that grows, only the complete lines."""
    data = file.read_bytes()
    return data[: data.rfind(b"\n") + 1] if file.suffix in GROWING else data
