"""Map a function over items in threads, in order and with bounded look-ahead.

Threads help here because file reads and NumPy's arithmetic release the interpreter lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    ahead: int,
) -> Iterator[Result]:
    """Yield the result for each item, in the order of the items.

    Args:
        pool: its threads call the function.
        function: called once for each item.
        items: read only as far as results are computed ahead.
        ahead: results that may be finished or in progress, beyond the one that was taken last.
    """
    remaining = iter(items)
    pending: deque[Future[Result]] = deque()
    try:
        pending.extend(pool.submit(function, item) for item in islice(remaining, ahead))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, item) for item in islice(remaining, 1))
            yield result
    finally:
        for future in pending:
            future.cancel()
        wait(pending)
