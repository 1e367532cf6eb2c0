"""Changes to Ray Tune's controller for which there is no public setting.

It removes finished trials, and imports less. `tuning.controller.ray_tune.listener` replaces its
actors. `tuning.upstream` lists the private names.
"""

from __future__ import annotations

from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback


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
        controller.get_live_trials(),
        controller._stopped_trials,
        controller._trials_to_cache,  # to be written to a state that is never read
    ):
        group.difference_update(finished)


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

    on_trial_error = on_trial_complete = on_trial_result
