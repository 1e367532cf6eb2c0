"""Has Ray Tune keep its actors between trials. There is no public setting for it."""

from __future__ import annotations

from typing import Any

_MANY = 1_000
"""More than there are ever trials at once."""


def keep_actors(controller: Any, resources: Any) -> None:
    """Keep every actor that is free for the next trial, and start one only where none is.

    By itself Tune keeps one, so that of two trials which end at once the next one of the second
    would wait for a new process; and it lets no trial begin while another waits for its actor.

    Args:
        controller: Tune's `TuneController`.
        resources: of an actor, as Tune's trials name them.
    """
    controller._actor_cache.increase_max(resources, _MANY)
    controller.update_max_pending_trials(_MANY)
    controller._maybe_reuse_cached_actor = _Reuse(controller)


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
