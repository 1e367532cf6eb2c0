"""Classify a failure once, by a pure function of its error and log, and choose the remedy.

`docs/reliability.md` explains all remedies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from results.records.machines import Machine
from search_spaces.patterns import matches


class Remedy(StrEnum):
    """The driver's reaction to a failure."""

    RETRY = "retry"
    RETRY_ELSEWHERE = "retry_elsewhere"
    SHRINK = "shrink"
    LARGER_LAYOUT = "larger_layout"
    LARGER_SHARE = "larger_share"
    DIVERGED = "diverged"
    INFEASIBLE = "infeasible"
    FAIL_TRIAL = "fail_trial"
    STOP_SWEEP = "stop_sweep"

    @property
    def tries_again(self) -> bool:
        """Whether the trial gets another attempt, if its budget of attempts allows one."""
        return self in (Remedy.RETRY, Remedy.RETRY_ELSEWHERE, *MORE_MEMORY)


MORE_MEMORY = (Remedy.SHRINK, Remedy.LARGER_LAYOUT, Remedy.LARGER_SHARE)
"""After these an attempt needs less memory than the one before, or has more."""


class Cause(StrEnum):
    """Cause of a failure. Each cause has its own budget of attempts."""

    BUG = "bug"
    PREEMPTION = "preemption"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Failure:
    """A classified failure.

    Attributes:
        error: one line with rank, exception type and message.
        remedy: the driver's reaction.
        cause: the budget of attempts that it is charged to.
        blamed: machines that the next attempts avoid.
    """

    error: str
    remedy: Remedy
    cause: Cause
    blamed: tuple[Machine, ...] = ()


_OOM = (
    r"OutOfMemoryError|\bMemoryError\b|out of memory|[Cc]an(no|')t allocate memory|std::bad_alloc"
    r"|low on memory|_STATUS_ALLOC_FAILED"
)
_DIED = (
    r"ActorDiedError|ActorUnavailableError|WorkerCrashedError|NodeDiedError|OwnerDiedError"
    r"|RayActorError|WorkerHealthCheck\w+Error|the workers left|driving process died"
    r"|broker between driver and workers died"
    r"|Connection closed by peer|the program was killed by SIG(KILL|TERM|HUP)"
)
_CERTAIN = (
    r"\b(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|NameError):"
    r"|TypeError: .*(missing \d+ required|positional arguments? but|unexpected keyword argument)"
    r"|TypeError: metric .* which is not a number"
)
"""Mistakes in the code, which a retry repeats for certain."""
_CERTAIN_AT_FIRST = re.compile(
    r"\b(AttributeError|UnboundLocalError):"
    r"|\b(FileNotFound|NotADirectory)Error: .*: '(?!/|\w+://)"
    r"|\bSystemExit: 2\b|exited with code 2: .*([Uu]sage: |[Ee]rror: )"
)
"""The same, before the first report of a trial: names, relative paths, and the arguments of a
program. Later they may follow from what happened, and an absolute path may be of a mount that
comes back.
"""
_HUNG = re.compile(r"^Timeout \(\d+:\d\d:\d\d", re.MULTILINE)
"""First line of the stacks that faulthandler writes after `failure.hang_timeout`."""

_RULES: tuple[tuple[str, Remedy, Cause], ...] = (
    (r"\bPreempt(ed|ionError):", Remedy.RETRY, Cause.PREEMPTION),
    (r"\bSuperseded:", Remedy.RETRY, Cause.INFRASTRUCTURE),
    (_OOM, Remedy.SHRINK, Cause.BUG),
    (r"\bFloatingPointError\b", Remedy.DIVERGED, Cause.BUG),
    (r"\bDiskFullError:", Remedy.FAIL_TRIAL, Cause.INFRASTRUCTURE),
    (  # before UserError: our own writers raise it with this text
        r"No space left on device|[Dd]isk quota exceeded|File too large|Read-only file system"
        r"|then run tune resume$",
        Remedy.STOP_SWEEP,
        Cause.INFRASTRUCTURE,
    ),
    (r"\bUserError:", Remedy.FAIL_TRIAL, Cause.BUG),
    (_CERTAIN, Remedy.FAIL_TRIAL, Cause.BUG),
    (r"device-side assert", Remedy.RETRY_ELSEWHERE, Cause.BUG),
    (
        r"\bECC\b|AcceleratorError|NVLink|fallen off the bus|\bXid\b|unspecified launch failure",
        Remedy.RETRY_ELSEWHERE,
        Cause.INFRASTRUCTURE,
    ),
    (
        r"Input/output error|Stale file handle|Connection (reset|refused|timed out)"
        r"|AWS Error|google::cloud::Status",
        Remedy.RETRY,
        Cause.INFRASTRUCTURE,
    ),
)


def classify(
    error: str,
    log: str = "",
    *,
    patterns: Mapping[str, Remedy] | None = None,
    on_oom: Remedy = Remedy.SHRINK,
    reported: bool = True,
) -> Failure:
    """Classify a failure.

    Args:
        error: one line, made by `trainables.launch.errors.describe_failure`.
        log: the end of the ranks' logs.
        patterns: the user's regular expressions, searched in error and log, with their remedies.
            The first match wins, before all other rules.
        on_oom: the remedy for exhausted memory.
        reported: whether the trial has a report.
    """
    error = _with_assertion(error, log)
    for pattern, remedy in (patterns or {}).items():
        if matches(pattern, f"{error}\n{log}"):
            elsewhere = remedy is Remedy.RETRY_ELSEWHERE
            return Failure(error, remedy, Cause.INFRASTRUCTURE if elsewhere else Cause.BUG)
    for pattern, remedy, cause in _RULES:
        if re.search(pattern, error):
            chosen = on_oom if pattern is _OOM else remedy
            return Failure(error, chosen, cause)
    if not reported and _CERTAIN_AT_FIRST.search(error):
        return Failure(error, Remedy.FAIL_TRIAL, Cause.BUG)
    if re.search(_DIED, error):
        return _died(error, log, on_oom)
    return Failure(error, Remedy.RETRY, Cause.BUG)


def _with_assertion(error: str, log: str) -> str:
    """The error with the assertion that failed on the GPU, which CUDA prints to the log only."""
    found = re.search(r"Assertion `.*` failed", log)
    text = "device-side assert triggered"
    return error.replace(text, f"{text}: {found[0]}") if found else error


def _died(error: str, log: str, on_oom: Remedy) -> Failure:
    """A process died without raising an error; its log may show the cause."""
    if _HUNG.search(log):
        why = "a rank was silent for longer than failure.hang_timeout; the stacks are in the logs"
        return Failure(f"hung: {why}", Remedy.RETRY, Cause.BUG)
    if re.search(r"std::bad_alloc|[Cc]an(no|')t allocate memory", log):
        return Failure(error, on_oom, Cause.BUG)
    return Failure(error, Remedy.RETRY, Cause.INFRASTRUCTURE)


def signature(error: str) -> str:
    """The error without numbers, addresses and ids, which differ between occurrences."""
    return re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+", "#", error)


_RAISED = re.compile(r"^(?:rank \d+: )?(\w+): .* \((?:[^()]*, )?([^(),]+:\d+)\)$")
"""An error that names the user's line which raised it; see `trainables.user_code.frames`."""


def same_cause(error: str, other: str) -> bool:
    """Whether two errors are of one class and from one line of the user's code; if such a line is
    not known, whether they differ in numbers only.
    """
    raised, other_raised = _RAISED.search(error), _RAISED.search(other)
    if raised and other_raised:
        return raised.groups() == other_raised.groups()
    return signature(error) == signature(other)
