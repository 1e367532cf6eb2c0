"""Storage that fails for a moment: network file systems do. A few tries, further and further apart.

What is tried again is always a whole durable write, never an fsync alone: after one that failed,
Linux may have dropped the very pages that it could not write.
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
_jitter = random.Random()  # of its own: the global generator belongs to the training


def retry_while(
    is_transient: Callable[[OSError], bool],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Try again what fails in a way that may pass; the last error is raised.

    Pauses double from `FIRST_PAUSE_S`, each times 0.5 to 1.5, so that many clients of a storage do
    not come back at once.

    Args:
        passes: whether an error may be gone the next time.
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
    """Try a durable write again when the storage says that it may work."""
    return retry_while(lambda e: e.errno in TRANSIENT)(write)
