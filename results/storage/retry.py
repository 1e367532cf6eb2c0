"""Retry storage operations that fail for a moment, as on network file systems.

A whole durable write is retried, never an fsync alone: after a failed fsync, Linux may have
dropped the pages that it could not write.
"""

from __future__ import annotations

import errno
import functools
import logging
import random
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from search_spaces.redaction import redact

log = logging.getLogger(__name__)

TRANSIENT = frozenset({errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR})
TRIES = 5
FIRST_PAUSE_S = 0.05

P = ParamSpec("P")
R = TypeVar("R")
_jitter = random.Random()  # its own generator: the global one belongs to the training


def retry_while(
    is_transient: Callable[[OSError], bool],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Retry a call that fails with a transient error, `TRIES` times in all; raises the last error.

    Pauses double from `FIRST_PAUSE_S`. Each is multiplied by 0.5 to 1.5, so that many clients of
    one storage do not retry at the same moment.

    Args:
        is_transient: whether the next try may succeed after this error.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(call)
        def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            for number in range(TRIES - 1):
                try:
                    return call(*args, **kwargs)
                except OSError as e:
                    if not is_transient(e):
                        raise
                    pause = FIRST_PAUSE_S * 2**number * _jitter.uniform(0.5, 1.5)
                    log.warning("storage: %s; trying again in %.2f s", redact(str(e)), pause)
                    time.sleep(pause)
            return call(*args, **kwargs)

        return tried

    return decorate


def retry_io(write: Callable[P, R]) -> Callable[P, R]:
    """Retry a durable write that fails with one of the `TRANSIENT` errors."""
    return retry_while(lambda e: e.errno in TRANSIENT)(write)
