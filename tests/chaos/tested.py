"""Rows whose faults are done by the test suite: its tests are run, and what they say is counted.

A test tells what was lost, and how long it took, by pytest's `record_property`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.chaos.outcome import Outcome, Row

ROOT = Path(__file__).parents[2]
LOST, RECOVERY_S = "steps_done_twice", "recovery_s"
"""Properties of a test."""
_named: dict[str, set[str]] = {}
"""File to the tests of it that any row names: they share what its fixtures make."""


def tested(fault: str, *tests: str) -> Row:
    """A row of tests.

    Args:
        fault: what they do.
        tests: `tests/….py::test_name`, for all of its parameters, or with one in brackets.
    """

    for test in tests:
        _named.setdefault(test.partition("::")[0], set()).add(test)

    def run(folder: Path, names: list[str]) -> Iterator[Outcome]:
        for name in names:
            yield outcome(name, [c for c in _file(name.partition("::")[0]) if c.is_of(name)])

    return Row(fault, lambda count: list(tests), run)


@dataclass(frozen=True)
class Ran:
    """One test of a file."""

    name: str
    lost: int
    recovery_s: float
    problem: str | None

    def is_of(self, test: str) -> bool:
        """Whether it is the test, or one of its parameters."""
        asked = test.partition("::")[2].replace("::", ".")
        return self.name == asked or self.name.startswith(f"{asked}[")


def outcome(case: str, ran: list[Ran]) -> Outcome:
    """What the tests of a case come to; none at all is a mistake."""
    problems = tuple(f"{r.name}: {r.problem}" for r in ran if r.problem is not None)
    if not ran:
        problems = ("there is no such test",)
    return Outcome(
        case,
        len(ran),
        max((r.lost for r in ran), default=0),
        max((r.recovery_s for r in ran), default=0.0),
        problems,
    )


@cache
def _file(file: str) -> list[Ran]:
    """Run the tests of a file, once."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"]
        subprocess.run(
            [*command, *sorted(_named[file]), f"--junitxml={report}"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return read(report)


def read(report: Path) -> list[Ran]:
    """What a JUnit report says of each test."""
    found = []
    for case in ET.parse(report).iter("testcase"):
        properties = {p.get("name"): p.get("value", "0") for p in case.iter("property")}
        bad = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        found.append(
            Ran(
                _qualified(case.get("classname", ""), case.get("name", "")),
                int(properties.get(LOST, "0")),
                float(properties.get(RECOVERY_S, "0")),
                bad[0].get("message", "failed").splitlines()[0] if bad else None,
            )
        )
    return found


def _qualified(classname: str, name: str) -> str:
    """`Class.test` or `test`."""
    last = classname.rpartition(".")[2]
    return f"{last}.{name}" if last[:1].isupper() else name
