"""What `torch.compile` made for a trial: dropped behind it, or kept for the next ones like it."""

from __future__ import annotations

import sys
from collections.abc import Hashable

import torch


class _CompiledCode:
    """Of this process; `key` is of what is kept, and `kept` says so of the trial that runs."""

    key: Hashable = None
    kept = False


_STATE = _CompiledCode()


def keep_compiled(key: Hashable) -> None:
    """Keep what this trial compiles for later ones with the same key.

    They trace nothing. For another key all is dropped, since a function is compiled only so many
    times (8) until it is left as it is.
    """
    if key != _STATE.key:
        _drop()
    _STATE.key, _STATE.kept = key, True


def end_trial() -> None:
    """Drop what is not kept: it may hold on to models."""
    if not _STATE.kept:
        _drop()
        _STATE.key = None
    _STATE.kept = False


def _drop() -> None:
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
