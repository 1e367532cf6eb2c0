"""One thread for the matrices of a search. They are small, and the processors train the trials: the
threads of a library that wait for each other then take a hundred times as long as one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function with one thread of numpy and scipy."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with _libraries().limit(limits=1):
            return function(*args, **kwargs)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  # has a library of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
