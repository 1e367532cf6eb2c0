"""Finds the code and data of a sweep whose project was moved, and writes their new place down.

The files of a sweep folder name code and data by absolute paths. The code of another place is taken
only if its digests are those of the code that the trials ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records import environment
from results.records.trial import TrialRecord, read_trials
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from trainables.runtime.source import source_digests
from trainables.user_code.loader import canonical

_TRAINABLE = "trainable="


@dataclass(frozen=True)
class Move:
    """The folder of a project when its sweep began, and now."""

    old: Path
    new: Path

    def __str__(self) -> str:
        return f"the project was moved: {self.new} in place of {self.old}"

    def spec(self, spec: SweepSpec) -> SweepSpec:
        """The spec with the new places of files that are no longer at the old ones."""
        update: dict[str, Any] = {
            "named": spec.named and self._text(spec.named),
            "user_code": spec.user_code.mapped(self._text),
            "command": self._value(spec.command),
            "fixed": self._value(spec.fixed),
        }
        return spec.model_copy(update=update)

    def record(self, record: TrialRecord) -> TrialRecord:
        """The record of a trial in the same way."""
        return record.model_copy(update={"config": self._value(record.config)})

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self._value, value))
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        """A path, `script.py:function`, or `--option=path`."""
        path = re.sub(r"^-[^=]*=|(?<=\.py):\w+$", "", text)
        is_lost = path.startswith(f"{self.old}/") and not Path(path).exists()
        return text.replace(f"{self.old}/", f"{self.new}/", 1) if is_lost else text


def find_move(
    paths: SweepPaths, spec: SweepSpec, overrides: Sequence[str]
) -> tuple[Move | None, list[str]]:
    """The move of a sweep's project, which `trainable=` names or which is looked for.

    It is looked for from the working directory and the folders above the sweep.

    Returns:
        The move, and the other overrides. `trainable=` stays if it names other code.
    """
    given = [text for text in overrides if text.startswith(_TRAINABLE)]
    lost = [file for file in _code(spec) if given or not file.exists()]
    if not lost:
        return None, list(overrides)
    if given:
        named = canonical(given[-1].removeprefix(_TRAINABLE)).rpartition(":")[0]
        moves = iter([_move_of(lost[0], Path(named))])
    else:
        moves = _places(lost[0], [Path.cwd(), *paths.root.parents])
    ran = [one.source for one in environment.read_some(paths, read_trials(paths))]
    move = next((m for m in moves if m and (not ran or _source(m.spec(spec)) in ran)), None)
    return move, [text for text in overrides if move is None or text not in given]


def _code(spec: SweepSpec) -> list[Path]:
    """The files of the user's code that a spec names."""
    words = [spec.named.rpartition(":")[0]] if spec.named else spec.command or ()
    return [Path(w) for w in words if isinstance(w, str) and w.endswith(".py") and w[0] == "/"]


def _move_of(old: Path, new: Path) -> Move | None:
    """The move of a file; None if it has another name."""
    ends = zip(reversed(old.parts), reversed(new.parts), strict=False)
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], ends)))
    return Move(old.parents[same - 1], new.parents[same - 1]) if same and old != new else None


def _places(file: Path, folders: Sequence[Path]) -> Iterator[Move]:
    """Moves that lead to a file, the longest common end of its path first."""
    for depth in range(len(file.parts) - 1, 0, -1):
        found = (f for f in folders if f.joinpath(*file.parts[-depth:]).is_file())
        yield from (Move(file.parents[depth - 1], folder) for folder in found)


def _source(spec: SweepSpec) -> dict[str, str]:
    """Digests of the files of a spec's code, of which none is imported; empty if it is missing."""
    if spec.named is None:
        return dict(resolve(spec.trainable).source())  # of a command
    file = Path(spec.named.rpartition(":")[0])
    return dict(source_digests(file, file.parent)) if file.is_file() else {}
