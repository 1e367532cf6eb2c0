"""The broker as an actor of Ray: starts it, and asks it what must not fail with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainables.launch.broker.broker import Broker
from trainables.launch.errors import error_line

if TYPE_CHECKING:
    from ray.actor import ActorHandle

T = TypeVar("T")
_PING_TIMEOUT_S = 60.0
_DETAIL = re.compile(r"Worker exit type: .*")


def start_broker() -> ActorHandle[Broker]:
    """Start the broker actor on the driver's machine, so that it survives the loss of others.

    It holds no CPU and serves any number of waiting callers.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Broker).options(num_cpus=0, max_concurrency=10_000, scheduling_strategy=here)
    return actor.remote()  # type: ignore[return-value]  # it is an actor's handle


def broker_error(broker: ActorHandle[Broker]) -> str:
    """Why the broker actor does not answer, in one line; empty if it does."""
    import ray

    lanes: Any = broker.lanes_up.remote()
    try:
        ray.get(lanes, timeout=_PING_TIMEOUT_S)
    except ray.exceptions.RayError as e:
        detail = _DETAIL.search(str(e))
        return error_line(e) + (f" {detail[0]}" if detail else "")
    return ""


def get_or(default: T, answer: Any) -> T:
    """A broker's answer; a default if it has died: see `broker_error`."""
    import ray

    try:
        return cast("T", ray.get(answer))
    except ray.exceptions.RayError:
        return default
