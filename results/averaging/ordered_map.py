"""Several threads on one tensor: reading and NumPy's arithmetic both leave the interpreter free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_order(
    pool: ThreadPoolExecutor, make: Callable[[Item], Made], items: Iterable[Item], ahead: int
) -> Iterator[Made]:
    """What is made of each item, in the order of the items.

    Args:
        pool: of threads.
        make: is called in them.
        items: one call for each.
        ahead: results that are there or in the making, beside the one that was taken last.
    """
    left = iter(items)
    under_way: deque[Future[Made]] = deque()
    try:
        under_way.extend(pool.submit(make, item) for item in islice(left, ahead))
        while under_way:
            made = under_way.popleft().result()
            under_way.extend(pool.submit(make, item) for item in islice(left, 1))
            yield made
    finally:
        for future in under_way:
            future.cancel()
        wait(under_way)
