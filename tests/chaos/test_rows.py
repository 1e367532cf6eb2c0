"""The fault matrix names tests that exist, and reads their reports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import END, TABLES, write
from tests.chaos.hostile_rows import HOSTILE_ROWS
from tests.chaos.pytest_rows import TestResult, outcome, read
from tests.chaos.rows import ROWS

ROOT = Path(__file__).parents[2]
ALL = [*ROWS.items(), *HOSTILE_ROWS.items()]
NAMED = sorted({case for _, row in ALL for case in row.cases(1) if "::" in case})


@pytest.mark.parametrize("name", NAMED)
def test_row_names_an_existing_test(name: str) -> None:
    file, _, test = name.partition("::")
    function = test.partition("[")[0]
    tree = ast.parse((ROOT / file).read_text())
    tests = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    assert function in {n.name for n in tree.body if isinstance(n, tests)}


def test_rows_of_both_tables_have_different_names() -> None:
    assert len({name for name, _ in ALL}) == len(ALL)


@pytest.mark.parametrize("begin", TABLES)
def test_write_replaces_one_table_of_the_page(tmp_path: Path, begin: str) -> None:
    page = ROOT / "docs" / "measurements" / "faults.md"
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())
    write(copy, "the new one\n", begin)
    before, _, rest = page.read_text().partition(begin)
    assert "| Fault | Times injected |" in rest.partition(END)[0]
    assert copy.read_text() == f"{before}{begin}the new one\n{END}{rest.partition(END)[2]}"


def test_table_of_rows_of_both_halves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--table", "--rows", "5,B1", "--count", "5=10"]
    record = ["--record", str(tmp_path / "none.jsonl")]
    done = subprocess.run([*command, *record], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.count("| Fault | Times injected |") == 2
    assert "| 5 the driver killed" in done.stdout
    assert "| B1 " in done.stdout
    assert "cases are left in rows: 5, B1" in done.stdout


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_x[one]"><properties>
<property name="recovery_s" value="3.5"/><property name="steps_done_twice" value="2"/>
</properties></testcase>
<testcase classname="tests.a.test_b" name="test_x[two]">
<failure message="AssertionError: no&#10;x"/></testcase>
<testcase classname="tests.a.test_b.TestIt" name="test_x"><skipped message="later"/></testcase>
</testsuite></testsuites>"""


def test_read_junit_report(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(REPORT)
    ran = read(tmp_path / "r.xml")
    assert [r.name for r in ran] == ["test_x[one]", "test_x[two]", "TestIt.test_x"]
    both = [r for r in ran if r.is_of("tests/a/test_b.py::test_x")]
    made = outcome("case", both)
    assert (made.injected, made.lost, made.recovery_s) == (2, 2, 3.5)
    assert made.problems == ("test_x[two]: AssertionError: no",)
    assert [r.problem for r in ran if r.is_of("f.py::TestIt::test_x")] == ["later"]
    assert outcome("case", []).problems == ("there is no such test",)
    assert isinstance(ran[0], TestResult)


def test_read_properties_of_a_real_run(tmp_path: Path) -> None:
    file, report = tmp_path / "test_it.py", tmp_path / "r.xml"
    file.write_text("def test_x(record_property):\n    record_property('recovery_s', 1.5)\n")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", file]
    subprocess.run([*command, f"--junitxml={report}"], check=True, capture_output=True)
    assert read(report) == [TestResult("test_x", 0, 1.5, None)]
