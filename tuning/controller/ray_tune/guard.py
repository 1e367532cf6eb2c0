"""Keeps what our callbacks of Ray Tune raise. Ray Tune swallows some of it, or makes text of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tuning.controller.sweep import SweepController


class Adapter(Protocol):
    """An object with callbacks.

    Attributes:
        run: the sweep that the callbacks change.
    """

    run: SweepController


A = TypeVar("A", bound=Adapter)
P = ParamSpec("P")
R = TypeVar("R")
Callback = Callable[Concatenate[A, P], R]


def guarded(end: Any) -> Callable[[Callback[A, P, R]], Callback[A, P, R]]:
    """Decorate a callback: an exception ends the session, which raises it (`SweepController.fail`).

    Args:
        end: returned then, and by every later call: the answer that ends Ray Tune's loop soonest.
    """

    def decorate(callback: Callback[A, P, R]) -> Callback[A, P, R]:
        @wraps(callback)
        def call(adapter: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
            run = adapter.run
            run.on_progress()
            if run.error is None:
                try:
                    return callback(adapter, *args, **kwargs)
                except Exception as e:  # noqa: BLE001 - raised again by `drive`
                    run.fail(e)
            answer: R = end
            return answer

        return call

    return decorate
