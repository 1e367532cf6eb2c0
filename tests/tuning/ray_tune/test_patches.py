"""The patches of Ray Tune, on its own controller, whose constructor sets the private attributes."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.air.execution import AcquiredResources, ResourceManager, ResourceRequest
from ray.air.execution.resources.fixed import FixedAcquiredResources
from ray.train._internal.storage import StorageContext
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from tests.tuning.fake_pool import Sweep
from tuning.controller.ray_tune.driver import run_trials
from tuning.controller.ray_tune.patches import evict_finished


class EnoughResources(ResourceManager):
    """Resources for everything, without a cluster."""

    def request_resources(self, resource_request: ResourceRequest) -> None:
        pass

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        pass

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        return True

    def acquire_resources(self, resource_request: ResourceRequest) -> FixedAcquiredResources:
        return FixedAcquiredResources(resource_request, bundles=resource_request.bundles)

    def free_resources(self, acquired_resource: AcquiredResources) -> None:
        pass

    def clear(self) -> None:
        pass


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ray Tune's controller, without a cluster."""
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "1")  # else it asks the cluster
    monkeypatch.setattr("ray._private.auto_init_hook.enable_auto_connect", False)
    return TuneController(
        storage=StorageContext(str(tmp_path), "sweep"),
        resource_manager_factory=EnoughResources,
    )


def add_trials(controller: Any, *statuses: str) -> list[Trial]:
    trials = [Trial("any", trial_id=f"{n}", stub=True) for n in range(len(statuses))]
    for trial, status in zip(trials, statuses, strict=True):
        controller.add_trial(trial)
        controller._set_trial_status(trial, status)
    return trials


def test_evict_finished_keeps_unfinished_trials(controller: Any) -> None:
    trials = add_trials(controller, "TERMINATED", "ERROR", "RUNNING", "TERMINATED", "PENDING")
    running, pending = trials[2], trials[4]
    evict_finished(controller)
    assert controller._trials == [running, pending]
    assert controller._trials_to_cache == controller._live_trials == {running, pending}
    assert (controller._running_trials, controller._pending_trials) == ({running}, {pending})
    assert not controller._stopped_trials


def test_evict_finished_keeps_the_newest_trial(controller: Any) -> None:
    *_, newest = add_trials(controller, "TERMINATED", "TERMINATED")
    evict_finished(controller)
    assert controller._trials == [newest]
    assert controller._stopped_trials == {newest}


def test_objects_of_a_session_can_be_collected_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tuner:
        def __init__(self, *args: Any, **settings: Any) -> None:
            assert gc.get_freeze_count() > 0

        def fit(self) -> None:
            pass

    monkeypatch.setattr(tune, "Tuner", Tuner)
    sweep = Sweep(tmp_path)
    run_trials(sweep.run, sweep.workers, lambda: None)
    assert gc.get_freeze_count() == 0
