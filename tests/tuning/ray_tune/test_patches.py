"""The patches of Ray Tune, on its own controller, whose constructor sets the private attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.air.execution import AcquiredResources, ResourceManager, ResourceRequest
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.air.execution.resources.fixed import FixedAcquiredResources
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train._internal.storage import StorageContext
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from tuning.controller.ray_tune.patches import evict_finished, keep_actors

RESOURCES = ResourceRequest([{"CPU": 1}])


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


def start_actor(controller: Any) -> tuple[TrackedActor, list[Exception]]:
    """A running actor of trial 0, and the errors that end it."""
    manager, errors = controller._actor_manager, list[Exception]()
    actor = TrackedActor(1, on_error=lambda _, error: errors.append(error))
    acquired = EnoughResources().acquire_resources(RESOURCES)
    manager._live_actors_to_ray_actors_resources[actor] = None, acquired
    controller._actor_to_trial[actor] = Trial("any", trial_id="0", stub=True)
    return actor, errors


def add_trials(controller: Any, *statuses: str) -> list[Trial]:
    trials = [Trial("any", trial_id=f"{n}", stub=True) for n in range(len(statuses))]
    for trial, status in zip(trials, statuses, strict=True):
        controller.add_trial(trial)
        controller._set_trial_status(trial, status)
        controller._trial_metadata[trial.trial_id] = "{}"
    return trials


def test_keep_actors_takes_a_memory_kill_for_a_dead_actor(controller: Any) -> None:
    actor, errors = start_actor(controller)
    low = OutOfMemoryError("2 worker(s) were killed due to the node running low on memory")
    with pytest.raises(RuntimeError, match="unexpected"):  # without the patch
        controller._actor_manager._actor_task_failed(TrackedActorTask(actor), low)
    killed = set[str]()
    keep_actors(controller, RESOURCES, killed, [])
    controller._actor_manager._actor_task_failed(TrackedActorTask(actor), low)
    assert killed == {"0"}
    assert [(type(e), str(e)) for e in errors] == [(RayActorError, str(low))]


def test_keep_actors_leaves_other_errors_to_ray_tune(controller: Any) -> None:
    actor, errors = start_actor(controller)
    killed = set[str]()
    keep_actors(controller, RESOURCES, killed, [])
    died = RayActorError(error_msg="gone")
    controller._actor_manager._actor_task_failed(TrackedActorTask(actor), died)
    assert errors == [died]
    assert not killed


def test_keep_actors_gives_no_actor_to_a_trial_whose_own_is_starting(controller: Any) -> None:
    waiting, starting = Trial("any", trial_id="1", stub=True), TrackedActor(1)
    waiting.placement_group_factory = RESOURCES
    keep_actors(controller, RESOURCES, set(), [])
    controller._trial_to_actor[waiting] = starting
    assert controller._actor_cache.cache_object(RESOURCES, TrackedActor(2))
    assert not controller._maybe_reuse_cached_actor(waiting)
    assert controller._trial_to_actor == {waiting: starting}
    assert controller._actor_cache.num_cached_objects == 1


def test_evict_finished_keeps_unfinished_trials(controller: Any) -> None:
    trials = add_trials(controller, "TERMINATED", "ERROR", "RUNNING", "TERMINATED", "PENDING")
    running, pending = trials[2], trials[4]
    evict_finished(controller)
    assert controller._trials == controller._pending_trials_list == [running, pending]
    assert controller._trials_to_cache == controller._live_trials == {running, pending}
    assert set(controller._trial_metadata) == {running.trial_id, pending.trial_id}
    assert (controller._running_trials, controller._pending_trials) == ({running}, {pending})
    assert not controller._stopped_trials
    assert not controller._failed_trials


def test_evict_finished_keeps_the_newest_trial(controller: Any) -> None:
    *_, newest = add_trials(controller, "TERMINATED", "TERMINATED")
    evict_finished(controller)
    assert controller._trials == [newest]
    assert controller._stopped_trials == {newest}
