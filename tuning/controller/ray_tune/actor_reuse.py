"""Has Ray Tune keep its actors between trials, and outlive those that were killed for memory.

There is no public setting for either.
"""

from __future__ import annotations

from typing import Any

_MANY = 1_000
"""More than there are ever trials at once."""


def keep_actors(controller: Any, resources: Any, killed: set[str]) -> None:
    """Keep every actor that is free for the next trial, and start one only where none is.

    By itself Tune keeps one, so that of two trials which end at once the next one of the second
    would wait for a new process; and it lets no trial begin while another waits for its actor.

    Args:
        controller: Tune's `TuneController`.
        resources: of an actor, as Tune's trials name them.
        killed: is told the trials whose actors Ray's memory monitor kills, by Tune's ids.
    """
    controller._actor_cache.increase_max(resources, _MANY)
    controller.update_max_pending_trials(_MANY)
    controller._maybe_reuse_cached_actor = _Reuse(controller)
    controller._actor_manager._actor_task_failed = _Failed(controller, killed)


class _Reuse:
    """Takes the place of Tune's own method, but for a trial whose actor is on its way.

    Tune gives it one that is free and ends the start of the other. When trials are shorter than
    such a start that goes on for ever: no actor comes up, and one runs all of the trials.
    """

    def __init__(self, controller: Any) -> None:
        self._started_for = controller._trial_to_actor
        self._reuse = controller._maybe_reuse_cached_actor

    def __call__(self, trial: Any) -> bool:
        return trial not in self._started_for and self._reuse(trial)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles what its controller has for a restore that we never do


class _Failed:
    """Takes the place of the method of Tune's actor manager that hears of a call that failed.

    Tune knows two ways, and ends the sweep over a third: an actor that the memory monitor killed.
    """

    def __init__(self, controller: Any, killed: set[str]) -> None:
        self._trials, self._killed = controller._actor_to_trial, killed
        self._failed = controller._actor_manager._actor_task_failed

    def __call__(self, tracked_actor_task: Any, exception: Exception) -> None:
        from ray.exceptions import OutOfMemoryError, RayActorError

        if isinstance(exception, OutOfMemoryError):
            trial = self._trials.get(tracked_actor_task._tracked_actor)
            self._killed |= set() if trial is None else {trial.trial_id}
            exception = RayActorError(error_msg=str(exception))
        self._failed(tracked_actor_task, exception)
