"""`make chaos`: every fault in numbers, and a table of what became of them.

python -m tests.chaos [--rows 5,6,fuzz] [--kills 50] [--fuzz 10000] [--record chaos.jsonl]

What is done is kept in the record, so that a run that was interrupted goes on with what is left;
`--table` prints what is known by now.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.cluster import LOCK
from tests.chaos.outcome import Ledger, Row, table
from tests.chaos.rows import ROWS


def main() -> int:
    """Run the rows that were asked for; gives 1 when anything was broken."""
    asked = _parser().parse_args()
    os.environ["COLUMNS"] = "120"
    if asked.lock:
        os.environ[LOCK] = str(asked.lock)
    counts = {"5": asked.kills, "fuzz": asked.fuzz, "folders": max(1, asked.fuzz // 25)}
    ledger = Ledger(asked.record)
    rows = {name: ROWS[name] for name in asked.rows.split(",")}
    if not asked.table:
        for name, row in rows.items():
            _run(name, row, row.cases(counts.get(name, 10**6)), ledger)
    print(table(rows, ledger))
    return any(outcome.problems for name in rows for outcome in ledger.of(name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="which, by comma")
    parser.add_argument("--kills", type=int, default=50, help="of drivers (row 5)")
    parser.add_argument("--fuzz", type=int, default=10_000, help="sweep files; folders: one in 25")
    parser.add_argument("--record", type=Path, default=Path("build/chaos.jsonl"))
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--lock", type=Path, help="file to lock while Ray works")
    return parser


def _run(name: str, row: Row, cases: list[str], ledger: Ledger) -> None:
    if not (left := ledger.left(name, cases)):
        return
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        for outcome in row.run(Path(folder), left):
            ledger.note(name, outcome)
            for problem in outcome.problems:
                sys.stderr.write(f"row {name}, {outcome.case}: {problem}\n")
            made = ledger.of(name)
            if len(made) % 100 == 0 or len(cases) < 100:
                sys.stderr.write(f"row {name}: {len(made)} of {len(cases)} cases\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
