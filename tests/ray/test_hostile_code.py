"""Training code with mistakes: when the sweep ends, what it says, and how it goes on."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from results.records.trial import TrialRecord, TrialState
from tests.chaos.cluster import Cluster
from tests.ray.conftest import Tune

FAULTS = """
from trainables import Split, Trainable, TrainableConfig, Worker


class Config(TrainableConfig):
    fault: str


class Faults(Trainable[Config]):
    Config = Config

    def train(self, config: Config, worker: Worker) -> None:
        for step in (1, 2, 3):
            metrics = getattr(self, config.fault)(step)
            if metrics is not None:
                worker.report(step=step, metrics=metrics, final=step == 3)

    def evaluate(self, config, weights, split: Split, cache):
        return {"score": 0.0}

    def broken(self, step):
        import helpers
        return {"score": float(step)}

    one = two = three = broken

    def sometimes(self, step):
        return {"score": float(step)} if step != 2 else {"other": 1.0}

    def never(self, step):
        return None

    def nan(self, step):
        return {"score": float("nan")}

    def infinite(self, step):
        return {"score": float("inf")}

    def text(self, step):
        return {"score": "good"}

    def signature(self, step):
        self.broken()

    def missing_file(self, step):
        open("/no/such/file.csv")

    def misnamed(self, step):
        return {"scores": float(step)}
"""


def at(*codes: str) -> str:
    """The lines of `FAULTS` with these texts, as errors name them."""
    lines = [line.strip() for line in FAULTS.splitlines()]
    return f"({', '.join(f'faults.py:{lines.index(code) + 1}' for code in codes)})"


MISSING = 'open("/no/such/file.csv")'
CALL = "metrics = getattr(self, config.fault)(step)"
KINDS = {
    "sometimes": "ran to its end",
    "never": "never reported score; it reported nothing",
    "nan": "diverged: score is nan",
    "infinite": "diverged: score is inf",
    "text": "rank 0: TypeError: metric score is 'good' (str), which is not a number "
    + at("worker.report(step=step, metrics=metrics, final=step == 3)"),
    "signature": "rank 0: TypeError: Faults.broken() missing 1 required positional argument: 'step'"
    f" {at(CALL, 'self.broken()')}",
    "missing_file": "rank 0: FileNotFoundError: [Errno 2] No such file or directory: "
    f"'/no/such/file.csv' {at(CALL, MISSING)} (the same error 2 times)",
    "misnamed": "never reported score (did you mean 'scores'?)",
}
"""Faults, and why their trials ended."""
BROKEN = f"rank 0: ModuleNotFoundError: No module named 'helpers' {at(CALL, 'import helpers')}"


@dataclass
class Sweep:
    """A sweep of which the first three trials failed in the same way; it went on after a fix.

    Attributes:
        tune: the program that ran it.
        failed, out: output of the first and of the second session.
        shown: by `tune show` afterwards.
        before, trials: records by fault, after each session.
    """

    tune: Tune
    failed: str
    before: dict[str, TrialRecord]
    out: str
    shown: str
    trials: dict[str, TrialRecord]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, joined: Cluster) -> Sweep:
    tune = Tune(tmp_path_factory.mktemp("hostile"), joined.address)
    (tune.cwd / "faults.py").write_text(FAULTS)
    (tune.cwd / "faults.yaml").write_text(
        "name: faults\ntrainable: faults.py:Faults\nmetric: score\nmode: max\n"
        f"space: {{fault: {{grid_search: [one, two, three, {', '.join(KINDS)}]}}}}\n"
        "scheduler: {name: none}\nresources: {concurrency: 1}\n"
        "tracking: {name: none}\nfailure: {max_retries: 1}\n"
    )
    failed = tune("run", "faults.yaml", code=1)
    before = {r.params["fault"]: r for r in tune.trials("faults")}
    (tune.cwd / "helpers.py").touch()
    out = tune("resume", "faults", "--retry-failed")
    after = {r.params["fault"]: r for r in tune.trials("faults")}
    return Sweep(tune, failed, before, out, tune("show", "faults"), after)


def test_sweep_ends_after_three_trials_that_fail_alike(sweep: Sweep) -> None:
    assert list(sweep.before) == ["one", "two", "three"]
    assert {(r.state, len(r.attempts), r.reason) for r in sweep.before.values()} == {
        (TrialState.FAILED, 1, BROKEN)
    }
    same = "t0000, t0001 and t0002 failed in the same way, and no trial has a value"
    assert f"{same}: {BROKEN}" in sweep.failed
    assert f"failed 3 trials (t0000, t0001, t0002): {BROKEN}; log " in sweep.failed
    assert "stopped; continue with: tune resume faults --retry-failed" in sweep.failed


def test_failed_trials_run_again_after_a_fix(sweep: Sweep) -> None:
    assert "failed trials that run again: t0000, t0001, t0002" in sweep.out
    for kind in sweep.before:
        assert sweep.trials[kind].state is TrialState.COMPLETED
        assert len(sweep.trials[kind].attempts) == 2
    assert re.search(r"^winner t000", sweep.out, re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_each_mistake_is_one_line(sweep: Sweep, kind: str) -> None:
    record = sweep.trials[kind]
    assert record.reason == KINDS[kind]
    assert len(record.attempts) == (2 if kind == "missing_file" else 1)
    if kind == "sometimes":
        said = f"1 of 3 reports of {record.id} lack the metric, and do not count"
    else:
        said = f"failed {record.id}: {record.reason}; log "
    assert sweep.out.count(said) == sweep.shown.count(said) == 1


LOOP = """
import ray.train
import ray.tune


def loop(config):
    say(config["fault"])


def say(fault):
    if fault == "text":
        ray.train.report({"score": "good"})
    else:
        ray.tune.report({"score": 1.0})
"""


def test_mistakes_of_a_ray_train_loop_are_one_line(tune: Tune) -> None:
    (tune.cwd / "loops.py").write_text(LOOP)
    (tune.cwd / "loops.yaml").write_text(
        "name: loops\ntrainable: loops.py:loop\nmetric: score\nmode: max\n"
        "space: {fault: {grid_search: [tune, text]}}\nscheduler: {name: none}\n"
        "resources: {concurrency: 2}\ntracking: {name: none}\n"
    )
    tune("run", "loops.yaml", code=1)
    reports_to_tune, text = tune.trials("loops")
    assert reports_to_tune.reason == (
        "never reported score; it reported nothing; a Ray Train loop calls ray.train.report"
    )
    assert text.reason == (
        "rank 0: TypeError: metric score is 'good' (str), which is not a number "
        "(loops.py:7, loops.py:12)"
    )
    assert len(text.attempts) == 1
