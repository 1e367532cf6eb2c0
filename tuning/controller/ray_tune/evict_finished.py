"""What Ray Tune keeps for good of attempts that are over, though nobody asks it.

There is no public setting for it.
"""

from __future__ import annotations

from typing import Any


def forget_finished(controller: Any) -> None:
    """Drop finished trials from Ray Tune's lists, but for the newest.

    With none at all its summary would look for them on the disk.

    Args:
        controller: Tune's `TuneController`, or what it shows of itself to a scheduler.
    """
    trials: list[Any] = controller.get_trials()
    over = {t for t in trials[:-1] if t.is_finished()}
    trials[:] = [t for t in trials if t not in over]
    for kept in (
        controller._stopped_trials,
        controller._failed_trials,
        controller._trials_to_cache,  # to be written to a state that is never read
    ):
        kept.difference_update(over)
    for trial in over:
        controller._trial_metadata.pop(trial.trial_id, None)
        controller._live_trials.discard(trial)
    waiting = controller._pending_trials_list
    waiting[:] = [t for t in waiting if t not in over]
