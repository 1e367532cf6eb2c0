"""What came of each fault, kept line by line, so that a run that is killed goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from results.storage.atomic import append_line, read_lines


@dataclass(frozen=True)
class Outcome:
    """What came of one case.

    Attributes:
        case: its name within the row.
        injected: how often the fault was done.
        lost: steps that were done twice, of all trials of the case's sweep.
        recovery_s: longest time from the fault, or the resume, to the next report (seconds).
        problems: what was broken, a line each; none where everything was survived.
    """

    case: str
    injected: int = 1
    lost: int = 0
    recovery_s: float = 0.0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the fault matrix.

    Attributes:
        fault: what is done.
        cases: names of the cases, of so many as are asked for.
        run: does the named cases in a folder, and says what came of each as soon as it is known.
    """

    fault: str
    cases: Callable[[int], list[str]]
    run: Callable[[Path, list[str]], Iterator[Outcome]]


def numbered(count: int) -> list[str]:
    """Cases that differ by their seed alone."""
    return [str(number) for number in range(count)]


@dataclass
class Ledger:
    """Outcomes in a JSON-lines file, by row and case; those of other code do not count.

    Attributes:
        file: to which several processes may add.
        code: names the code that is tried.
    """

    file: Path
    code: str
    known: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for raw in read_lines(self.file):
            row, code = raw.pop("row"), raw.pop("code")
            if code == self.code:
                self._know(row, Outcome(**{**raw, "problems": tuple(raw["problems"])}))

    def note(self, row: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        self._know(row, outcome)
        append_line(self.file, json.dumps({"row": row, "code": self.code, **asdict(outcome)}))

    def _know(self, row: str, outcome: Outcome) -> None:
        self.known.setdefault(row, {})[outcome.case] = outcome

    def of(self, row: str) -> list[Outcome]:
        """What came of a row's cases, as far as they were done."""
        return list(self.known.get(row, {}).values())

    def left(self, row: str, cases: list[str]) -> list[str]:
        """Those that were not done yet."""
        return [case for case in cases if case not in self.known.get(row, {})]


def table(rows: dict[str, Row], ledger: Ledger) -> str:
    """Markdown, for docs/reliability.md; what was broken follows it."""
    head = ("Fault", "Times injected", "Survived", "Steps done twice, at most", "Recovery, at most")
    lines = [head, ("---",) * len(head)]
    problems = []
    for name, row in rows.items():
        made = ledger.of(name)
        injected = sum(o.injected for o in made)
        survived = sum(o.injected for o in made if not o.problems)
        recovery = max((o.recovery_s for o in made), default=0.0)
        shown = f"{recovery:.0f} s" if recovery else "-"
        lost = max((o.lost for o in made), default=0)
        steps = str(lost) if lost or recovery else "-"  # most faults interrupt no training
        lines.append((f"{name} {row.fault}", f"{injected:,}", f"{survived:,}", steps, shown))
        problems += [f"row {name}, {o.case}: {line}" for o in made for line in o.problems]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *problems])
