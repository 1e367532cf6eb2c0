"""`python -m trainables.launch.rerun ORDER`: trains one trial as far as it came before, without Ray.

A program of its own, for fresh processes: alone, or as one rank under torchrun.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from results.records.trial import Report
from trainables.job import Answer, TrialJob


@dataclass(frozen=True)
class StopAfter:
    """Lets a trial train to a step, and stops it there."""

    step: int

    def report(self, report: Report) -> Answer:
        """STOP at the step or beyond it."""
        return Answer.STOP if report.step >= self.step else Answer.CONTINUE


@dataclass(frozen=True)
class RerunOrder:
    """What is to be done: a trial, and the step at which it ends."""

    job: TrialJob
    until: int


def main() -> None:
    """Do what a file says."""
    from trainables.launch.local import run_local

    again = TypeAdapter(RerunOrder).validate_json(Path(sys.argv[1]).read_bytes())
    run_local(again.job, StopAfter(again.until))


if __name__ == "__main__":
    main()
