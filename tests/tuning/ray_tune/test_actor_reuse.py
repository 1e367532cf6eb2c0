"""Ray Tune's own code, with what takes the place of some of it."""

from __future__ import annotations

from typing import Any

import pytest
from ray.air.execution import FixedResourceManager, ResourceRequest
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.utils.object_cache import _ObjectCache

from tuning.controller.ray_tune.actor_reuse import keep_actors

NEEDS = ResourceRequest([{"CPU": 1}])


@pytest.fixture
def controller() -> Any:
    """Tune's; to be made as Tune does, it needs Ray."""
    made: Any = object.__new__(TuneController)
    made._trial_to_actor, made._actor_to_trial, made._resetting_trials = {}, {}, set()
    made._actor_cache = _ObjectCache(may_keep_one=True)
    made._actor_manager = RayActorManager(FixedResourceManager({"CPU": 1}))
    return made


def started(controller: Any) -> tuple[TrackedActor, list[Exception]]:
    """An actor of trial 0 that is at work, and what is heard of its end."""
    manager, heard = controller._actor_manager, list[Exception]()
    actor = TrackedActor(1, on_error=lambda _, error: heard.append(error))
    manager._resource_manager.request_resources(NEEDS)
    held = manager._resource_manager.acquire_resources(NEEDS)
    manager._live_actors_to_ray_actors_resources[actor] = None, held
    controller._actor_to_trial[actor] = Trial("any", trial_id="0", stub=True)
    return actor, heard


def test_an_actor_killed_for_memory_is_one_that_died(controller: Any) -> None:
    actor, heard = started(controller)
    low = OutOfMemoryError("2 worker(s) were killed due to the node running low on memory")
    with pytest.raises(RuntimeError, match="unexpected"):  # Tune's own way
        controller._actor_manager._actor_task_failed(TrackedActorTask(actor), low)
    killed = set[str]()
    keep_actors(controller, NEEDS, killed)
    controller._actor_manager._actor_task_failed(TrackedActorTask(actor), low)
    assert killed == {"0"}
    assert [(type(e), str(e)) for e in heard] == [(RayActorError, str(low))]


def test_any_other_end_is_left_to_tune(controller: Any) -> None:
    actor, heard = started(controller)
    killed = set[str]()
    keep_actors(controller, NEEDS, killed)
    died = RayActorError(error_msg="gone")
    controller._actor_manager._actor_task_failed(TrackedActorTask(actor), died)
    assert heard == [died]
    assert not killed


def test_a_trial_whose_actor_is_on_its_way_takes_no_other(controller: Any) -> None:
    waiting, starting = Trial("any", trial_id="1", stub=True), TrackedActor(1)
    waiting.placement_group_factory = NEEDS
    keep_actors(controller, NEEDS, set())
    controller._trial_to_actor[waiting] = starting
    assert controller._actor_cache.cache_object(NEEDS, TrackedActor(2))
    assert not controller._maybe_reuse_cached_actor(waiting)
    assert controller._trial_to_actor == {waiting: starting}
    assert controller._actor_cache.num_cached_objects == 1
