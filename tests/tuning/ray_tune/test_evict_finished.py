"""Ray Tune's own lists do not grow with the trials of a sweep."""

from __future__ import annotations

from typing import Any

from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from tuning.controller.ray_tune.evict_finished import forget_finished

SETS = (
    *("_pending_trials", "_running_trials", "_paused_trials", "_stopped_trials"),
    *("_failed_trials", "_live_trials", "_trials_to_cache"),
)


def controller_of(*statuses: str) -> Any:
    """Tune's, with trials of these states; to be made as Tune does, it needs Ray."""
    controller: Any = object.__new__(TuneController)
    controller._trials, controller._pending_trials_list, controller._trial_metadata = [], [], {}
    for name in SETS:
        setattr(controller, name, set())
    of = {
        Trial.PENDING: controller._pending_trials,
        Trial.RUNNING: controller._running_trials,
        Trial.TERMINATED: controller._stopped_trials,
        Trial.ERROR: controller._failed_trials,
    }
    for number, status in enumerate(statuses):
        trial = Trial("any", trial_id=f"{number}", stub=True)
        trial.status = status
        of[status].add(trial)
        controller._trials.append(trial)
        controller._pending_trials_list.append(trial)
        controller._trials_to_cache.add(trial)
        controller._trial_metadata[trial.trial_id] = "{}"
    return controller


def test_what_is_over_is_forgotten_and_what_is_not_stays() -> None:
    controller = controller_of("TERMINATED", "ERROR", "RUNNING", "TERMINATED", "PENDING")
    _, _, running, _, pending = controller._trials
    forget_finished(controller)
    assert controller._trials == controller._pending_trials_list == [running, pending]
    assert controller._trials_to_cache == {running, pending}
    assert set(controller._trial_metadata) == {running.trial_id, pending.trial_id}
    assert (controller._running_trials, controller._pending_trials) == ({running}, {pending})
    assert not controller._stopped_trials
    assert not controller._failed_trials


def test_the_newest_stays_for_tunes_summary() -> None:
    controller = controller_of("TERMINATED", "TERMINATED")
    newest = controller._trials[-1]
    forget_finished(controller)
    assert controller._trials == [newest]
    assert controller._stopped_trials == {newest}
