"""The tracking process: delivers a running sweep to MLflow, at low priority.

`python -m tuning.controller.tracking.process FOLDER [TOKEN FENCE]`. It reads from the driver, one
line each: the id of a trial that changed; at the end, as JSON, how the session ended. It writes, as
JSON: warnings, and what could not be delivered. It stops when the driver stops, or when the token
no longer owns the sweep.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from results.paths import SweepPaths
from results.storage.fencing import NullFence, Owner
from results.tracking import Delivery, Ending

_YIELDS = 15
"""Priority of Ray's own workers: the loop that answers trials comes first."""


class _Aloud(logging.Handler):
    """Says warnings to the driver, which knows how to show them."""

    def __init__(self, said: TextIO) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """One line of JSON."""
        _say(self._said, {"warning": record.getMessage()})


def deliver(paths: SweepPaths, delivery: Delivery, heard: TextIO, said: TextIO) -> None:
    """Do what the driver says until it says how the session ended, or is gone."""
    for line in heard:
        word = line.strip()
        if not word.startswith("{"):
            delivery.changed(word, reported=True)
            continue
        end = json.loads(word)
        for trial_id in paths.trial_ids():  # a word may have been lost
            delivery.changed(trial_id, reported=True)
        ending = Ending(end["status"], end["metrics"])
        _say(said, {"undelivered": delivery.close(ending, end["timeout"])})
        return


def main() -> None:
    """Deliver the sweep of a folder."""
    from results.records.spec_file import read_spec
    from tuning.controller.tracking.observer import make_delivery

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    os.nice(_YIELDS)
    os.umask(0o077)
    with open(os.dup(1), "w", buffering=1, encoding="utf-8") as said:
        os.dup2(2, 1)  # whatever else prints
        logging.getLogger().addHandler(_Aloud(said))
        paths = SweepPaths(Path(sys.argv[1]))
        fence = Owner(paths.lock, sys.argv[2], int(sys.argv[3])) if sys.argv[2:] else NullFence()
        deliver(paths, make_delivery(read_spec(paths), paths, fence), sys.stdin, said)


def _say(said: TextIO, word: dict[str, str | None]) -> None:
    said.write(json.dumps(word) + "\n")


if __name__ == "__main__":
    main()
