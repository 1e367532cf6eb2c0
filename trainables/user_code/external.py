"""Trials that run outside: a Python program asks for them, and tells what came out."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.errors import UserError
from trainables.user_code.user_loop import UncheckedConfig, UserCode
from trainables.worker import Worker


class External(UserCode):
    """No code: `Sweep.ask` and `Sweep.tell` are called by the program that trains."""

    kind = "program that asks and tells"

    def check_runnable(self) -> None:
        """See the base class."""
        raise UserError(
            f"trainable {self.name}: its trials are run by a Python program: "
            "tuning.load(SWEEP).ask() and .tell(trial, metrics)"
        )

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """There is nothing to run; see the base class."""
        self.check_runnable()

    def source(self) -> Mapping[str, str]:
        """The code is not known; see the base class."""
        return {}
