"""Errors of workers in one line, without secrets."""

from __future__ import annotations

import re
import traceback

from search_spaces.redaction import redact
from trainables.user_code.frames import user_lines

_MAX_ERROR_CHARS = 1_000
"""Characters of an error that a trial's record keeps."""
_NO_ACTOR = "error raised in its creation task"
_OTHERS = re.compile(r" Process \d+ has [\d.]+ \w+ memory in use\.")
"""What each other process holds of a GPU, in torch's error."""


def describe_failure(error: BaseException) -> str:
    """One line with the failed rank and its error; a rank that died comes before the others."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:  # the controller's own failure, such as a start that took too long
        return error_line(getattr(error, "controller_failure", error))
    died = {rank: e for rank, e in failures.items() if hasattr(e, "health_check_failure")}
    rank, failure = min((died or failures).items())
    if rank in died:
        cause = error_line(died[rank].health_check_failure)
        return f"rank {rank}: {type(failure).__name__}: {cause}"
    return f"rank {rank}: {error_line(failure.__cause__ or failure)}"


def error_line(error: BaseException) -> str:
    """An exception's class, the first line of its message, redacted, and the user's lines; the log
    has the rest.
    """
    lines = [line for line in _OTHERS.sub("", str(error)).splitlines() if line.strip()]
    message = f"{type(error).__name__}: {(lines or [repr(error)])[0].strip()}"
    # Ray's message of an actor that could not begin ends with the cause.
    line = redact(lines[-1] if _NO_ACTOR in message else message)
    line = line if len(line) <= _MAX_ERROR_CHARS else f"{line[:_MAX_ERROR_CHARS]} …"
    return line + user_lines(error)


def without_secrets(error: Exception) -> Exception:
    """The exception, or another one with its redacted message: Ray writes it to its own logs."""
    text = "".join(traceback.format_exception(error))
    return error if redact(text) == text else RuntimeError(error_line(error))
