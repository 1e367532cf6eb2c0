"""`make chaos`: inject every fault and print two tables of the outcomes.

python -m tests.chaos [--rows 5,6,fuzz,B1] [--kills 50] [--fuzz 10000] [--count B5=20]

Outcomes are kept in a record file, so an interrupted run continues with the cases that are left.
Several processes may share a record, each with its own rows. `--table` prints the outcomes that are
recorded for the current commit. `--into PAGE` replaces the tables of the rows that were asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.hostile_rows import HOSTILE_ROWS
from tests.chaos.outcome import Ledger, Row, table
from tests.chaos.rows import ROWS

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- table of: python -m tests.chaos -->\n", "<!-- end of the table -->\n"
HOSTILE = "<!-- table hostile and exhausted: python -m tests.chaos -->\n"
TABLES = {BEGIN: ROWS, HOSTILE: HOSTILE_ROWS}
"""The mark at which a table begins in docs/measurements/faults.md, to its rows."""


def main() -> int:
    """Run the requested rows; return 1 when an invariant was broken or cases are left."""
    asked = _parser().parse_args()
    os.environ["COLUMNS"] = "120"
    counts = {"5": asked.kills, "own": asked.own, "fuzz": asked.fuzz, "folders": asked.folders}
    counts |= {name: int(n) for name, n in (given.split("=") for given in asked.count)}
    ledger = Ledger(asked.record, code())
    known = ROWS | HOSTILE_ROWS
    rows = {name: known[name] for name in asked.rows.split(",")}
    cases = {name: row.cases(counts.get(name, row.count)) for name, row in rows.items()}
    until = time.monotonic() + 60 * asked.minutes
    if not asked.table:
        for name, row in rows.items():
            _run(name, row, cases[name], ledger, until)
    for begin, of in TABLES.items():
        if shown := {name: row for name, row in rows.items() if name in of}:
            found = f"Of {ledger.code}, on {os.cpu_count()} cores:\n\n{table(shown, ledger)}\n"
            print(found)
            if asked.into:
                write(asked.into, found, begin)
    left = [name for name in rows if ledger.left(name, cases[name])]
    if left:
        print(f"cases are left in rows: {', '.join(left)}")
    return bool(left) or any(outcome.problems for name in rows for outcome in ledger.of(name))


def write(page: Path, found: str, begin: str) -> None:
    """Replace the table of a page that begins at a mark."""
    before, _, rest = page.read_text().partition(begin)
    _, end, after = rest.partition(END)
    page.write_text(f"{before}{begin}{found}{end}{after}")


def code() -> str:
    """Name the code under test: the commit, and whether files were changed since."""
    head, changed = (
        subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for args in (["rev-parse", "--short=10", "HEAD"], ["diff", "--stat", "HEAD", "--", "*.py"])
    )
    return f"commit {head or 'unknown'}{' and changes' * bool(changed)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS | HOSTILE_ROWS), help="names of rows")
    parser.add_argument("--kills", type=int, default=50, help="killed drivers (row 5)")
    parser.add_argument("--own", type=int, default=10, help="the same with own clusters")
    parser.add_argument("--fuzz", type=int, default=10_000, help="mutated sweep files")
    parser.add_argument("--folders", type=int, default=1_000, help="damaged sweep folders")
    parser.add_argument("--count", action="append", default=[], help="ROW=CASES of any row")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no case after this time")
    parser.add_argument("--record", type=Path, default=Path("build/chaos.jsonl"))
    parser.add_argument("--table", action="store_true", help="print the tables, run nothing")
    parser.add_argument("--into", type=Path, help="page whose tables are replaced")
    return parser


def _run(name: str, row: Row, cases: list[str], ledger: Ledger, until: float) -> None:
    left = ledger.left(name, cases)
    if not left or time.monotonic() > until:
        return
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        for outcome in row.run(Path(folder), left):
            ledger.note(name, outcome)
            for problem in outcome.problems:
                sys.stderr.write(f"row {name}, {outcome.case}: {problem}\n")
            made = ledger.of(name)
            if len(made) % 100 == 0 or len(cases) < 100:
                sys.stderr.write(f"row {name}: {len(made)} of {len(cases)} cases\n")
            if time.monotonic() > until:
                return


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
