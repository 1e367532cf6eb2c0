"""Rows of the fault matrix that run tests of the suite and count their results.

A test reports repeated steps and recovery time through pytest's `record_property`.
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
"""File → the tests of it that rows name. They run in one process and share fixtures."""


def row_of_tests(fault: str, *tests: str) -> Row:
    """A row that runs tests.

    Args:
        fault: what the tests inject.
        tests: `tests/….py::test_name`, with all of its parameters, or with one in brackets.
    """

    for test in tests:
        _named.setdefault(test.partition("::")[0], set()).add(test)

    def run(folder: Path, names: list[str]) -> Iterator[Outcome]:
        for name in names:
            yield outcome(name, [c for c in _file(name.partition("::")[0]) if c.is_of(name)])

    return Row(fault, lambda count: list(tests), run)


@dataclass(frozen=True)
class TestResult:
    """Result of one test.

    Attributes:
        name: `test_name[parameter]`, or `Class.test_name`.
        lost: steps that were done twice.
        recovery_s: longest time until the next report (seconds).
        problem: first line of the failure; None for a test that passed.
    """

    __test__ = False  # not a test class

    name: str
    lost: int
    recovery_s: float
    problem: str | None

    def is_of(self, test: str) -> bool:
        """Whether this is a result of the test, with any parameter, or of the class of tests."""
        asked = test.partition("::")[2].replace("::", ".")
        return self.name == asked or self.name.startswith((f"{asked}[", f"{asked}."))


def outcome(case: str, ran: list[TestResult]) -> Outcome:
    """Combine the results of a case's tests. A case without any is a problem."""
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
def _file(file: str) -> list[TestResult]:
    """Run the named tests of a file, once per process."""
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


def read(report: Path) -> list[TestResult]:
    """Read the test results of a JUnit report."""
    found = []
    for case in ET.parse(report).iter("testcase"):
        properties = {p.get("name"): p.get("value", "0") for p in case.iter("property")}
        bad = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        found.append(
            TestResult(
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
