"""A sweep that was simulated, with hostile names in it, as the report reads it."""

import math
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.report.sweep_data import SweepData, read_sweep_data
from search_spaces.loading.sweep_file import dump_sweep
from tests.tuning.simulate import make_spec, open_run, train
from tuning.search.schedulers import Decision

EVIL = "</script><img src=x onerror=alert(1)>"
SPACE = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "x": {"uniform": [-1.0, 1.0]},
    "opt": {"choice": ["adam", EVIL]},
}


def loss(config: dict[str, Any], step: int) -> float:
    return abs(math.log10(config["lr"]) + 2) + 0.1 * config["x"] + 1 / step


def written(root: Path, trials: int = 40, **changes: Any) -> SweepPaths:
    """A sweep whose loss depends strongly on lr and weakly on x; its third trial fails."""
    more = {"space": SPACE, "budget": {"trials": trials}, "failure": {"max_retries": 0}, **changes}
    run = open_run(root, make_spec(search={"name": "random"}, **more))
    run.paths.spec.write_text(dump_sweep(run.spec))
    while not run.finished:
        job = run.next_trial()
        assert job is not None
        if job.trial_id == "t0002":
            run.on_failed(job.trial_id, f"rank 1: ValueError: {EVIL}")
        elif train(run, job, value=loss) is Decision.CONTINUE:
            run.on_ended(job.trial_id)
    return run.paths


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    return written(tmp_path_factory.mktemp("reported"), description=f"of {EVIL}")


@pytest.fixture(scope="module")
def data(paths: SweepPaths) -> SweepData:
    return read_sweep_data(paths)
