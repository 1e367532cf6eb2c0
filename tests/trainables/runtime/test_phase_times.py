"""Each moment of a rank is counted to one phase, also through a real trial."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from results.records.worker_samples import read_samples
from results.trial_paths import TrialPaths
from tests.trainables.local import run_trial
from trainables.runtime.sampler import PhaseTimes, UsageSampler


class Clock:
    """Time that passes only when it is spent, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def test_inner_phase_is_not_part_of_the_outer_one(clock: Clock) -> None:
    times = PhaseTimes()
    times.started()
    with times.of("evaluation"):
        clock.spend(1)
        with times.of("data"):
            clock.spend(3)
    clock.spend(2)
    assert times.take() == {"start": 0, "evaluation": 1, "data": 3, "compute": 2}
    assert times.take().keys() == {"compute"}


def test_wait_is_taken_from_compute(clock: Clock) -> None:
    times = PhaseTimes()
    times.started()
    clock.spend(2)
    times.waited(0.5)
    times.waited(100)  # it cannot have waited for longer than it ran
    assert times.take() == {"start": 0, "compute": 0, "communication": 2}


def test_phases_of_a_trial_are_its_duration(tmp_path: Path) -> None:
    began = time.perf_counter()
    run_trial(tmp_path / "t", "digits", {"epochs": 3})
    whole = time.perf_counter() - began
    samples = list(read_samples(TrialPaths(tmp_path / "t"), 1))
    assert (samples[0].step, samples[-1].step) == (1, 3)  # between, where a step takes long
    phases = [
        {k.removeprefix("system/seconds_"): v for k, v in s.values.items() if "/seconds_" in k}
        for s in samples
    ]
    assert phases[0]["start"] > 0
    assert {"compute", "evaluation", "report"} <= phases[0].keys()
    assert 0.5 * whole < sum(sum(of.values()) for of in phases) <= whole


def test_sample_that_finds_a_full_disk_is_lost_alone(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path)
    paths.samples(1, 0).parent.mkdir(parents=True)
    paths.samples(1, 0).symlink_to("/dev/full")
    UsageSampler(paths, 1, 0, torch.device("cpu"), PhaseTimes()).sample(1)
    assert paths.samples(1, 0).is_symlink()
