"""One sweep in which trials fail on the device, one after another, and what comes after each."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.failures import Remedy
from results.records.trial import TrialRecord, TrialState
from tests.ray.conftest import Tune

STEPS = 3
KINDS = (
    "well",
    "out_of_memory",
    "after_memory",
    "out_of_range",
    "after_range",
    "hides_an_error",
    "after_hidden",
    "leaves_an_error",
    "after_left",
    "dies_once",
    "last",
)
FAILED = {
    "out_of_memory": "OutOfMemoryError: CUDA out of memory",
    "out_of_range": "device-side assert triggered: Assertion `",
    "hides_an_error": "ValueError: something else",
    "leaves_an_error": "device-side assert triggered: Assertion `",
}


@pytest.fixture(scope="module")
def tune(tmp_path_factory: pytest.TempPathFactory, device_name: str) -> Tune:
    tune = Tune(tmp_path_factory.mktemp("faults"), address="")
    (tune.cwd / "faults.yaml").write_text(
        "name: faults\ntrainable: tests.gpu.probe:Probe\nmetric: loss\nmode: max\n"
        f"space: {{kind: {{grid_search: [{', '.join(KINDS)}]}}}}\n"
        f"fixed: {{steps: {STEPS}}}\n"
        "resources: {workers: 1, gpus_per_worker: 1}\nscheduler: {name: none}\n"
        "tracking: {name: none}\ncheckpoint: {every: 1}\nfailure: {max_retries: 0}\n"
    )
    tune("run", "faults.yaml")
    return tune


def trial(tune: Tune, kind: str) -> TrialRecord:
    return next(r for r in tune.trials("faults") if r.params["kind"] == kind)


def pid(tune: Tune, kind: str) -> float:
    return tune.curve("faults", trial(tune, kind).id)[0].metrics["pid"]


def test_only_faulty_trials_fail_each_with_its_reason_in_one_line(tune: Tune) -> None:
    states = {r.params["kind"]: r.state for r in tune.trials("faults")}
    assert {k for k, s in states.items() if s is TrialState.FAILED} == set(FAILED), states
    for kind, reason in FAILED.items():
        record = trial(tune, kind)
        assert reason in record.reason, record.reason
        assert "\n" not in record.reason
        assert kind == "leaves_an_error" or "probe.py:" in record.reason
        shown = tune("show", "faults", record.id)
        assert reason in shown


def test_process_with_a_broken_device_is_not_used_again(tune: Tune) -> None:
    before = "well"
    for kind in KINDS[1:]:
        if kind in FAILED:
            assert pid(tune, kind) == pid(tune, before)
        elif kind != "dies_once":
            assert pid(tune, kind) != pid(tune, before), kind
        before = kind


def test_out_of_memory_is_charged_to_the_configuration(tune: Tune) -> None:
    (attempt,) = trial(tune, "out_of_memory").attempts
    assert attempt.remedy is Remedy.INFEASIBLE  # it has no micro-batch to halve


def test_killed_worker_frees_its_memory_and_resumes(tune: Tune) -> None:
    record = trial(tune, "dies_once")
    assert record.state is TrialState.COMPLETED
    assert len(record.attempts) == 2
    log = tune.paths("faults").trial(record.id).log(2, 0).read_text()
    assert "from step 1" in log
    losses = [r.metrics["loss"] for r in tune.curve("faults", record.id)]
    assert losses == [1.0, 3.0, 6.0]


def test_trials_run_on_the_device_whose_facts_are_recorded(tune: Tune, device_name: str) -> None:
    import torch

    from results.records import environment
    from results.records.worker_samples import read_samples

    record = trial(tune, "well")
    (first, *_) = tune.curve("faults", record.id)
    assert (first.metrics["on_gpu"], first.metrics["nccl"]) == (1.0, 1.0)
    paths = tune.paths("faults").trial(record.id)
    facts = environment.read(paths, 1)
    assert facts is not None
    assert facts.hardware["device"] == device_name
    total = torch.cuda.get_device_properties(0).total_memory
    assert facts.hardware["device_memory"] == f"{total / 2**30:.1f} GiB"
    driver = Path("/proc/driver/nvidia/version").read_text()
    assert facts.hardware["driver"] in driver
    used = next(read_samples(paths, 1)).values
    assert used["system/gpu_watts"] > 0
    assert used["system/gpu_memory_mb"] > 0
    assert 0 <= used["system/gpu_percent"] <= 100
