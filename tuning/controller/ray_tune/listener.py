"""Takes the place of Ray Tune's actors: the driver hears of all attempts in one call to the broker.

Ray Tune starts a process for each of its trials, and handles one result in each iteration of its
loop. Here a trial of Ray Tune has no process. A call to the broker answers the reports of a batch,
and returns the events of all attempts since. What Ray Tune's loop does once in an iteration is done
once for a batch.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.exceptions import RayError

from trainables.job import Answer
from trainables.launch.broker.events import Event, Reported

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker.broker import Broker

KEY, EVENT = "key", "event"
"""Keys of a trial's configuration, and of its results."""
Events = Sequence[tuple[str, Event]]
"""Keys of attempts (`TrialJob.key`), each with an event, oldest first."""


class AttemptTrainable(tune.Trainable):
    """What a trial of Ray Tune is said to run. No process of it is ever started."""


@dataclass(eq=False)
class Listener:
    """A trial of Ray Tune that waits for events of an attempt; its "tracked actor".

    Attributes:
        key: of the attempt.
        on_stop: called when it listens no more.
        on_result, on_error: called with it and the next event, or the exception; None: not waiting.
    """

    key: str
    on_stop: Callable[[Any], None] | None
    on_result: Callable[[Any, Any], None] | None = None
    on_error: Callable[[Any, Exception], None] | None = None

    def set_on_stop(self, on_stop: Callable[[Any], None] | None) -> None:
        """Called by Ray Tune."""
        self.on_stop = on_stop

    def set_on_error(self, on_error: Callable[[Any, Exception], None] | None) -> None:
        """Called by Ray Tune, for an actor that dies; there is none."""


class Connection:
    """The calls to a broker, of which one is always under way while the driver does other work.

    Args:
        broker: the actor.
    """

    def __init__(self, broker: ActorHandle[Broker]) -> None:
        self._broker = broker
        self._call: tuple[str, Mapping[str, Answer]] = "", {}
        self._reply: Any = None

    def send(self, answers: Mapping[str, Answer]) -> None:
        """Send answers, by keys of attempts, and ask for the events that follow."""
        self._call = uuid.uuid4().hex, answers
        self._ask()

    def _ask(self) -> None:
        call: Any = self._broker.exchange
        self._reply = call.remote(*self._call)

    def receive(self, timeout_s: float) -> Events | None:
        """Wait for the events; None if there are none yet.

        Raises:
            ray.exceptions.RayError: the broker has died.
        """
        import ray

        if not ray.wait([self._reply], timeout=timeout_s)[0]:
            return None
        try:
            events: Events = ray.get(self._reply)
        except ray.exceptions.ActorUnavailableError:  # the reply was lost
            self._ask()
            return None
        return events


class ListeningManager:
    """Replaces Ray Tune's `RayActorManager`, with the part of its interface that Ray Tune uses.

    Args:
        connection: to the broker.
        answers: to be sent after each batch, by keys of attempts; the scheduler fills it.
        batch: a context in which the events of each batch are handed on.
        on_answered: called when the answers were sent.
    """

    def __init__(
        self,
        connection: Connection,
        answers: dict[str, Answer],
        batch: Callable[[], AbstractContextManager[None]],
        on_answered: Callable[[], None],
    ) -> None:
        self._connection, self._answers = connection, answers
        self._batch, self._on_answered = batch, on_answered
        self._listeners: dict[str, Listener] = {}
        self._calls = deque[Callable[[], None]]()
        self._is_asking = False
        # Ray Tune looks up the actor of a trial here.
        self._live_actors_to_ray_actors_resources: dict[Listener, tuple[None, None]] = {}

    def next(self, timeout: float | None = None) -> bool:
        """Start and stop listeners; then wait for a batch, and hand each event on.

        Returns:
            False if nothing happened.
        """
        calls, self._calls = self._calls, deque()
        for call in calls:
            call()
        if not self._is_asking:
            self._send()
        try:
            events = self._connection.receive(0.0 if calls else timeout or 0.0)
        except RayError as e:
            self._fail_all(e)
            return True
        if events is None:
            return bool(calls)
        with self._batch():
            for key, event in events:
                self._hand_on(key, event)
        self._send()
        return True

    def _send(self) -> None:
        answers = dict(self._answers)
        self._answers.clear()
        self._connection.send(answers)
        self._is_asking = True
        if answers:
            self._on_answered()

    def _hand_on(self, key: str, event: Event) -> None:
        """Hand an event to the trial that waits for it; an attempt that was ended has none."""
        listener = self._listeners.get(key)
        if listener is None or listener.on_result is None:
            return
        on_result, listener.on_result = listener.on_result, None
        on_result(listener, {EVENT: event, "done": not isinstance(event, Reported)})

    def _fail_all(self, error: Exception) -> None:
        self._is_asking = False
        for listener in list(self._live_actors_to_ray_actors_resources):
            on_error, listener.on_error = listener.on_error, None
            if on_error is not None:
                on_error(listener, error)

    def add_actor(
        self,
        cls: Any,
        kwargs: dict[str, Any],
        resource_request: Any,
        *,
        on_start: Callable[[Listener], None],
        on_stop: Callable[[Listener], None],
        on_error: Callable[[Listener, Exception], None],
    ) -> Listener:
        """Listen to the attempt that the trial's configuration names."""
        listener = Listener(kwargs["config"][KEY], on_stop)
        self._listeners[listener.key] = listener
        self._live_actors_to_ray_actors_resources[listener] = None, None
        self._calls.append(partial(on_start, listener))
        return listener

    def schedule_actor_task(
        self,
        tracked_actor: Listener,
        method_name: str,
        args: Any = None,
        kwargs: Any = None,
        on_result: Callable[[Listener, Any], None] | None = None,
        on_error: Callable[[Listener, Exception], None] | None = None,
        _return_future: bool = False,
    ) -> None:
        """Wait for the next event (`train`); for what else actors do there is nothing to do."""
        if method_name == "train":
            tracked_actor.on_result, tracked_actor.on_error = on_result, on_error

    def clear_actor_task_futures(self, tracked_actor: Listener) -> None:
        """Wait for no event."""
        tracked_actor.on_result = tracked_actor.on_error = None

    def remove_actor(
        self, tracked_actor: Listener, kill: bool = False, stop_future: Any = None
    ) -> bool:
        """Listen no more; False if it did not listen any more."""
        if not self.is_actor_started(tracked_actor):
            return False
        del self._live_actors_to_ray_actors_resources[tracked_actor]
        del self._listeners[tracked_actor.key]
        if tracked_actor.on_stop is not None:
            self._calls.append(partial(tracked_actor.on_stop, tracked_actor))
        return True

    def is_actor_started(self, tracked_actor: Listener) -> bool:
        """Whether it listens."""
        return tracked_actor in self._live_actors_to_ray_actors_resources

    def is_actor_failed(self, tracked_actor: Listener) -> bool:
        """False: there is no process that could fail."""
        return False

    @property
    def num_live_actors(self) -> int:
        """Attempts that are listened to."""
        return len(self._live_actors_to_ray_actors_resources)

    num_total_actors = num_actor_tasks = num_live_actors
    num_pending_actors = 0

    def cleanup(self) -> None:
        """Nothing: no process is left."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray Tune pickles its controller for a restore that is never done
