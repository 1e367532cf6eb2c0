"""Kills trials at fault points and resumes them, each in a fork of a process with torch.

    python -m tests.trainables.crash FOLDER POINT[:N]…

Prints for each point the trial's state after the kill and after the resume, and under "whole"
the state of a trial that is not killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch._dynamo  # once here instead of in every fork: an optimizer's first step imports it

from results.checkpoints.commit import damaged_checkpoints, newest_intact
from results.records.trial import read_reports
from results.storage.fault_injection import VARIABLE
from results.trial_paths import TrialPaths
from tests.trainables.local import run_trial, without_timing
from trainables.base import Split
from trainables.digits.task import images_of

CONFIG = {"hidden_units": 8, "num_layers": 1, "epochs": 6, "batch_size": 256, "dropout": 0.1}
EVERY = 2


def main(folder: Path, points: list[str]) -> None:
    torch.set_num_threads(1)
    for split in Split:
        images_of(split)
    results: dict[str, object] = {}
    for point in points:
        trial = folder / point.replace(":", "_")
        died = in_a_fork(trial, 1, point)
        before = state(trial)
        resumed = in_a_fork(trial, 2)
        results[point] = {"died": died, "before": before, "resumed": resumed, "after": state(trial)}
    in_a_fork(folder / "whole", 1)
    results["whole"] = state(folder / "whole")
    sys.stdout.write(json.dumps(results))


def in_a_fork(trial: Path, attempt: int, point: str | None = None) -> int:
    """Train; returns the exit status as `subprocess` does: -9 is SIGKILL."""
    pid = os.fork()
    if not pid:
        if point:
            os.environ[VARIABLE] = point
        code = 1
        try:
            TrialPaths(trial).attempt(attempt).mkdir(parents=True)
            run_trial(trial, "digits", CONFIG, attempt=attempt, checkpoint_every=EVERY)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def state(trial: Path) -> dict[str, object]:
    paths = TrialPaths(trial)
    newest = newest_intact(paths)
    return {
        "reports": [(r.step, r.attempt, without_timing(r.metrics)) for r in read_reports(paths)],
        "newest": newest.step if newest else 0,
        "damaged": len(damaged_checkpoints(paths)),
        "weights": newest.manifest.files["model.safetensors"].sha256 if newest else "",
        "hidden": [p.name for p in paths.checkpoints.glob(".*")],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
