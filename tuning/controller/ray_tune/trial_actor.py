"""The actor that stands for an attempt in Ray Tune. Light to import: it starts with the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray
from pydantic import TypeAdapter
from ray import tune

from results.records.machines import Machine
from trainables.launch.events import Ended, Failed

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker import Broker

KEY, REPORT, ERROR, BEGAN, CAME_UP = "key", "report", "error", "began", "came_up"
WAITED = "waited"
_MACHINES, _BY_RANK = "machines", TypeAdapter(dict[int, Machine])


def machines_of(result: Mapping[str, Any]) -> dict[int, Machine]:
    """The machine of each rank of an attempt that failed, as far as known."""
    return _BY_RANK.validate_json(result[_MACHINES])


class TrialActor(tune.Trainable):
    """Waits for the events of an attempt: one `step` returns a report, its end or its failure.

    The driver sends answers and stops to the broker itself, so that this actor has no state.
    """

    def setup(self, config: dict[str, Any], **parameters: Any) -> None:
        """Wait for events of an attempt."""
        self._broker, self._key = parameters["broker"], config[KEY]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Wait for events of another attempt."""
        self._key = new_config[KEY]
        return True

    def step(self) -> dict[str, Any]:
        """Wait for the attempt's next event."""
        event = ray.get(self._broker.next_event.remote(self._key))
        if isinstance(event, Failed):
            failed = {ERROR: event.reason, BEGAN: event.began, CAME_UP: event.came_up}
            failed |= {_MACHINES: _BY_RANK.dump_json(event.machines).decode()}
            return {**failed, WAITED: event.waited, "done": True}
        if isinstance(event, Ended):
            return {WAITED: event.waited, "done": True}
        # text: Tune flattens mappings
        return {WAITED: event.waited, REPORT: event.report.model_dump_json()}

    def _setup_logdir(self) -> None:
        """Use no folder: nothing is written. Ray Tune would make one, and change to it."""


def trial_actor(broker: ActorHandle[Broker]) -> Any:
    """The class of the actors for the attempts of one broker."""
    return tune.with_parameters(TrialActor, broker=broker)


def start_actors(broker: ActorHandle[Broker], number: int) -> list[Any]:
    """Start actors that no trial needs yet."""
    start: Any = ray.remote(num_cpus=0)(trial_actor(broker)).remote
    return [start(config={KEY: ""}) for _ in range(number)]


def started(actors: list[Any], timeout_s: float) -> list[Any]:
    """The actors that can get a trial in time."""
    ready = {actor.__ray_ready__.remote(): actor for actor in actors}
    up, _ = ray.wait([*ready], num_returns=len(ready), timeout=timeout_s)
    return [ready[one] for one in up]
