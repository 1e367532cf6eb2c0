"""Each moment of a rank is counted to one phase, also through a real trial."""

from __future__ import annotations

import time
from pathlib import Path

from results.paths import TrialPaths
from results.records.worker_samples import read_samples
from tests.trainables.local import run_trial
from trainables.runtime.phase_times import PhaseTimes


def spend(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_inner_phase_is_not_part_of_the_outer_one() -> None:
    began, times = time.perf_counter(), PhaseTimes()
    times.started()
    with times.of("evaluation"):
        spend(0.01)
        with times.of("data"):
            spend(0.03)
    spend(0.02)
    found, whole = times.take(), time.perf_counter() - began
    assert 0.01 <= found["evaluation"] < 0.03 <= found["data"]
    assert found["compute"] >= 0.02
    assert abs(sum(found.values()) - whole) < 0.001
    assert times.take().keys() == {"compute"}


def test_wait_is_taken_from_compute() -> None:
    times = PhaseTimes()
    times.started()
    spend(0.02)
    times.waited(0.005)
    times.waited(1.0)  # it cannot have waited for longer than it ran
    found = times.take()
    assert found["compute"] < 0.001
    assert 0.02 <= found["communication"] < 1.0


def test_phases_of_a_trial_are_its_duration(tmp_path: Path) -> None:
    began = time.perf_counter()
    run_trial(tmp_path / "t", "digits", {"epochs": 3})
    whole = time.perf_counter() - began
    samples = list(read_samples(TrialPaths(tmp_path / "t"), 1))
    assert [s.step for s in samples] == [1, 3]
    phases = [
        {k.removeprefix("system/seconds_"): v for k, v in s.values.items() if "/seconds_" in k}
        for s in samples
    ]
    assert phases[0]["start"] > 0
    assert {"compute", "evaluation", "report"} <= phases[0].keys()
    assert 0.5 * whole < sum(sum(of.values()) for of in phases) <= whole
