"""Outcomes of injected faults, appended to a file so that a killed run can continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from results.storage.atomic import append_line, read_lines


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        case: its name within the row.
        injected: how often the fault was injected.
        lost: steps that were done twice, of all trials of the case's sweep.
        recovery_s: longest time from the fault, or the resume, to the next report (seconds).
        problems: broken invariants, one line each; empty when the fault was survived.
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
        fault: what is injected.
        cases: from the requested number of cases to their names.
        run: runs the named cases in a folder and yields each outcome as soon as it is known.
        count: the full number of cases, if no other number is asked for.
    """

    fault: str
    cases: Callable[[int], list[str]]
    run: Callable[[Path, list[str]], Iterator[Outcome]]
    count: int = 10**6


def numbered(count: int) -> list[str]:
    """Names of cases that differ only in their seed."""
    return [str(number) for number in range(count)]


@dataclass
class Ledger:
    """Outcomes in a JSON-lines file, by row and case. Outcomes of other code are ignored.

    Attributes:
        file: several processes may append to it.
        code: name of the code under test.
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
        """Append an outcome."""
        self._know(row, outcome)
        append_line(self.file, json.dumps({"row": row, "code": self.code, **asdict(outcome)}))

    def _know(self, row: str, outcome: Outcome) -> None:
        self.known.setdefault(row, {})[outcome.case] = outcome

    def of(self, row: str) -> list[Outcome]:
        """Outcomes of a row, of the cases that were run."""
        return list(self.known.get(row, {}).values())

    def left(self, row: str, cases: list[str]) -> list[str]:
        """Cases that were not run yet."""
        return [case for case in cases if case not in self.known.get(row, {})]


def table(rows: dict[str, Row], ledger: Ledger) -> str:
    """The table as Markdown, for docs/measurements/faults.md, followed by the problems."""
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
