"""Ray Tune's handle on an attempt. Light to import: it starts while the workers come up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from pydantic import TypeAdapter
from ray import tune

from results.records.machines import Machine
from trainables.launch.events import Ended, Failed

KEY, REPORT, ERROR, BEGAN, CAME_UP = "key", "report", "error", "began", "came_up"
_MACHINES, _BY_RANK = "machines", TypeAdapter(dict[int, Machine])


def machines(result: Mapping[str, Any]) -> dict[int, Machine]:
    """Where each rank of an attempt that failed was, as far as that is known."""
    return _BY_RANK.validate_json(result[_MACHINES])


class TrialActor(tune.Trainable):
    """One `step` is the next event of the attempt: a report, its end or its failure.

    The answer to a report goes from the driver to the broker directly, and so does a stop: there
    is nothing here to save, reset or clean up.
    """

    def setup(self, config: dict[str, Any], **given: Any) -> None:
        """Listen to an attempt."""
        self._broker, self._key = given["broker"], config[KEY]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Listen to another."""
        self._key = new_config[KEY]
        return True

    def step(self) -> dict[str, Any]:
        """Wait for the attempt's next event."""
        event = ray.get(self._broker.next_event.remote(self._key))
        if isinstance(event, Failed):
            said = {ERROR: event.reason, BEGAN: event.began, CAME_UP: event.came_up}
            return {**said, _MACHINES: _BY_RANK.dump_json(event.machines).decode(), "done": True}
        if isinstance(event, Ended):
            return {"done": True}
        return {REPORT: event.report.model_dump_json()}  # text: Tune flattens mappings
