"""`python -m trainables.launch.rerun ORDER`: trains a trial again up to a step, without Ray.

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
    """A channel that stops a trial at a step."""

    step: int

    def report(self, report: Report) -> Answer:
        """STOP at the step or after it."""
        return Answer.STOP if report.step >= self.step else Answer.CONTINUE


@dataclass(frozen=True)
class RerunOrder:
    """A trial, and the step at which it stops."""

    job: TrialJob
    until: int


def main() -> None:
    """Read the order from the file that the command line names, and train."""
    from trainables.launch.run_trial import run_local

    order = TypeAdapter(RerunOrder).validate_json(Path(sys.argv[1]).read_bytes())
    run_local(order.job, StopAfter(order.until))


if __name__ == "__main__":
    main()
