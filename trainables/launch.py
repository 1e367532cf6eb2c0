"""Launches trials in `TorchTrainer`s. Nobody outside knows in which of two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.fit import Runner, Shape, open_mailbox
from trainables.mailbox import Ended, Mailbox, Reported
from trainables.registry import is_foreign

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = ["Ended", "Reported", "Runner", "Shape", "launch", "open_mailbox", "reusable"]


def reusable(trainable: str, isolation: str) -> bool:
    """Whether one runner may run several trials, one after another."""
    return isolation == "lane" and not is_foreign(trainable)


def launch(trainable: str, shape: Shape, mailbox: ActorHandle[Mailbox]) -> Runner:
    """Start what runs trials of a trainable; its workers come up in the background.

    Args:
        trainable: registered name, `path/to/script.py:function` or `package.module:function`.
        shape: what its workers hold.
        mailbox: of the sweep, from `open_mailbox`.
    """
    if is_foreign(trainable):
        from trainables.foreign_run import ForeignRun

        return ForeignRun(shape, mailbox)
    from trainables.lane import Lane

    return Lane(shape, mailbox)
