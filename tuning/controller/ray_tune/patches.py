"""Changes to Ray Tune's controller for which there is no public setting.

It keeps actors between trials, survives actors that were killed for memory, removes finished
trials, and imports less. `tuning.upstream` lists the private names.
"""

from __future__ import annotations

from typing import Any

from ray.actor import ActorClass
from ray.tune.progress_reporter import TrialProgressCallback

_UNLIMITED = 1_000
"""A number larger than that of concurrent trials."""


def keep_actors(controller: Any, resources: Any, killed: set[str], ready: list[Any]) -> None:
    """Keep every free actor for the next trial, and survive actors that were killed for memory.

    By default Ray Tune keeps one actor: if two trials end at once, the second next trial waits for
    a new process. It also starts no trial while another one waits for its actor.

    Args:
        controller: Ray Tune's `TuneController`.
        resources: of an actor, as in `Trial.placement_group_factory`.
        killed: gets the ids (Ray Tune's) of trials whose actors Ray's memory monitor killed.
        ready: actors that have started already; they are used first.
    """
    controller._class_cache = _ReadyFirst(controller._class_cache, ready)
    controller._actor_cache.increase_max(resources, _UNLIMITED)
    controller.update_max_pending_trials(_UNLIMITED)
    controller._maybe_reuse_cached_actor = _ReuseActor(controller)
    controller._actor_manager._actor_task_failed = _ActorTaskFailed(controller, killed)


class _ReadyFirst(ActorClass[Any]):
    """Replaces `_class_cache` and the class in it: Ray Tune's next actor has started already."""

    def __init__(self, original: Any, ready: list[Any]) -> None:
        self._original, self._ready = original, ready

    def get(self, trainable: Any) -> _ReadyFirst:
        """The class of the actors of a trainable, as of Ray Tune's cache."""
        return _ReadyFirst(self._original.get(trainable), self._ready)

    def options(self, **options: Any) -> _ReadyFirst:
        """The class with other options, which have no effect on an actor that has started."""
        return _ReadyFirst(self._original.options(**options), self._ready)

    def remote(self, **arguments: Any) -> Any:
        """An actor."""
        if not self._ready:
            return self._original.remote(**arguments)
        actor = self._ready.pop()
        actor.reset.remote(arguments["config"], arguments["storage"])
        return actor

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _ReuseActor:
    """Replaces `_maybe_reuse_cached_actor`: a trial whose actor is starting gets no other actor.

    Ray Tune would give it a free actor and cancel the start. If trials are shorter than a start,
    no start ever completes, and one actor runs all trials.
    """

    def __init__(self, controller: Any) -> None:
        self._trial_to_actor = controller._trial_to_actor
        self._original = controller._maybe_reuse_cached_actor

    def __call__(self, trial: Any) -> bool:
        return trial not in self._trial_to_actor and self._original(trial)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray Tune pickles its controller for a restore that is never done


class _ActorTaskFailed:
    """Replaces `_actor_task_failed` of the actor manager, which raises on an out-of-memory kill."""

    def __init__(self, controller: Any, killed: set[str]) -> None:
        self._actor_to_trial, self._killed = controller._actor_to_trial, killed
        self._original = controller._actor_manager._actor_task_failed

    def __call__(self, tracked_actor_task: Any, exception: Exception) -> None:
        from ray.exceptions import OutOfMemoryError, RayActorError

        if isinstance(exception, OutOfMemoryError):
            trial = self._actor_to_trial.get(tracked_actor_task._tracked_actor)
            self._killed |= set() if trial is None else {trial.trial_id}
            exception = RayActorError(error_msg=str(exception))
        self._original(tracked_actor_task, exception)


def evict_finished(controller: Any) -> None:
    """Remove finished trials from Ray Tune's lists, which otherwise grow with the sweep.

    The newest trial stays: without any, Ray Tune's summary would look for trials on the disk.

    Args:
        controller: Ray Tune's `TuneController`, or what it shows of itself to a scheduler.
    """
    trials: list[Any] = controller.get_trials()
    finished = {t for t in trials[:-1] if t.is_finished()}
    trials[:] = [t for t in trials if t not in finished]
    for group in (
        controller._stopped_trials,
        controller._failed_trials,
        controller._trials_to_cache,  # to be written to a state that is never read
    ):
        group.difference_update(finished)
    for trial in finished:
        controller._trial_metadata.pop(trial.trial_id, None)
        controller._live_trials.discard(trial)
    pending = controller._pending_trials_list
    pending[:] = [t for t in pending if t not in finished]


def forward_no_credentials() -> None:
    """Hand no credentials to Ray Tune's actors, which only listen: Ray writes them into its logs.

    By default Ray Tune passes on `AWS_SECRET_ACCESS_KEY` and its like, as part of `runtime_env`.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE as FORWARDED

    FORWARDED.difference_update({name for name in FORWARDED if name.startswith("AWS_")})


def count_no_callbacks() -> None:
    """Keep Ray Tune from importing MLflow, Comet and others, to count uses of their callbacks.

    MLflow alone takes a second of the driver's start. The counts go to Ray's usage statistics.
    """
    from ray.air._internal import usage

    usage.tag_callbacks = lambda callbacks: False


class NoProgress(TrialProgressCallback):
    """Replaces Ray Tune's progress callback, which keeps every trial that ended."""

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        """Nothing."""

    def on_trial_error(self, *args: Any, **info: Any) -> None:
        """Nothing."""

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        """Nothing."""
