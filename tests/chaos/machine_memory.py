"""Row 12: a trial exhausts the memory of the machine, and Ray's memory monitor kills a rank.

This is not part of the suite, because the amount that is needed depends on the other load of the
machine. The suite limits the memory of one process instead.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from results.paths import SweepPaths
from results.records.failures import Remedy
from results.records.trial import TrialRecord, TrialState, read_reports, read_trials
from tests.chaos.cluster import ENV, cluster
from tests.chaos.invariants import Case, lost_steps, violations
from tests.chaos.outcome import Outcome
from tests.chaos.recovery import recovery_s

ROOM = 4 * 2**30
"""Bytes that the cluster may allocate before its memory monitor acts."""

CODE = """
import time
from pydantic import Field
from trainables.base import Trainable, TrainableConfig

class Config(TrainableConfig):
    hungry: bool = Field(description="whether it takes more memory than there is")
    batch_size: int = Field(8, description="of all workers together")
    micro_batch_size: int | None = Field(None, description="of one worker at once")

class Hungry(Trainable):
    Config = Config

    def train(self, config, worker):
        found = worker.resume()
        value = float((found.folder / "value.txt").read_text()) if found else 0.0
        for step in range(found.step + 1 if found else 1, 5):
            value = 0.9 * value + step
            if step == 3 and config.hungry and not config.micro_batch_size and worker.rank == 1:
                kept = []
                while True:
                    kept.append(b"x" * 2**27)
                    time.sleep(0.05)
            save = lambda folder: worker.rank or (folder / "value.txt").write_text(repr(value))
            worker.report(step=step, metrics={"loss": value}, final=step == 4,
                          checkpoint=lambda folder: save(folder) and None)

    def evaluate(self, config, weights, split, cache):
        return {"loss": 0.0}
"""
SWEEP = """
name: hungry
trainable: hungry.py:Hungry
metric: loss
space: {hungry: {grid_search: [false, true]}}
scheduler: {name: none}
resources: {workers: 2, concurrency: 1}
checkpoint: {every: 1}
tracking: {name: none}
"""


def cases(count: int) -> list[str]:
    """The one case."""
    return ["monitor"][:count]


def exhausted(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """A trial exhausts the cluster's memory and continues with a smaller micro-batch."""
    (folder / "hungry.py").write_text(CODE)
    (folder / "hungry.yaml").write_text(SWEEP)
    memory = psutil.virtual_memory()
    share = (memory.total - memory.available + ROOM) / memory.total
    for name in names:
        with cluster(memory_usage_threshold=share) as joined:
            command = [sys.executable, "-m", "tuning", "run", "hungry.yaml"]
            done = subprocess.run(
                [*command, "--address", joined.address], cwd=folder, env=ENV, capture_output=True
            )
        paths = SweepPaths(folder / "sweeps" / "hungry")
        problems = violations(Case(paths, None, said=(done.stdout.decode(),)))
        problems += _wrong(paths, *read_trials(paths))
        yield Outcome(name, 1, lost_steps(paths), recovery_s(paths), tuple(problems))


def _wrong(paths: SweepPaths, well: TrialRecord, hungry: TrialRecord) -> Iterator[str]:
    said = [a.error for a in hungry.attempts]
    if hungry.state is not TrialState.COMPLETED:
        yield f"the trial is {hungry.state}: {said}"
    if [a.remedy for a in hungry.attempts] != [Remedy.SHRINK, None]:
        yield f"it was not classified as out of memory: {said}"
    curves = [
        [(r.step, r.metrics["loss"]) for r in read_reports(paths.trial(record.id))]
        for record in (well, hungry)
    ]
    if curves[0] != curves[1]:
        yield "I3: another curve"
