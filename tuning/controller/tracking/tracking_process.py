"""The tracking process: delivers a running sweep to MLflow, at low priority.

`python -m tuning.controller.tracking.tracking_process FOLDER [TOKEN FENCE]` reads lines from the
driver: the id of each trial that changed; last, as JSON, the end of the session. It writes warnings
and what it could not deliver, as JSON. It stops when the driver stops, or when the token no longer
owns the sweep. Without arguments it imports MLflow, and reads them as its first line, as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

from results.paths import SweepPaths
from results.storage.fencing import NullFence, Owner
from results.storage.sharing import use_modes_of
from results.tracking import Delivery, Ending

_NICENESS = 5
"""The driver's event loop has priority. With more, busy workers or the preparation of the next
driver of `tune up` would let the end of the session wait: a process cannot take it back.
"""


class _WarningsToDriver(logging.Handler):
    """Sends warnings to the driver, which shows them."""

    def __init__(self, output: TextIO) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line of JSON."""
        _send(self._output, {"warning": record.getMessage()})


def run_delivery(paths: SweepPaths, delivery: Delivery, messages: TextIO, output: TextIO) -> None:
    """Deliver the trials that the driver names, until it sends the end of the session or dies."""
    for line in messages:
        message = line.strip()
        if not message.startswith("{"):
            delivery.changed(message, reported=True)
            continue
        end = json.loads(message)
        for trial_id in paths.trial_ids():  # a message may have been lost
            delivery.changed(trial_id, reported=True)
        ending = Ending(end["status"], end["metrics"])
        _send(output, {"undelivered": delivery.close(ending, end["timeout"])})
        return


def main() -> None:
    """Deliver the sweep of a folder."""
    os.nice(_NICENESS)
    os.umask(0o077)
    with open(os.dup(1), "w", buffering=1, encoding="utf-8") as output:
        os.dup2(2, 1)  # what other code prints goes to stderr
        logging.getLogger().addHandler(_WarningsToDriver(output))
        if not (given := sys.argv[1:] or _later_arguments(sys.stdin)):
            return
        from results.records.spec_file import read_spec
        from tuning.controller.tracking.observer import make_delivery

        paths = SweepPaths(Path(given[0]))
        use_modes_of(paths.root)
        fence = Owner(paths.lock, given[1], int(given[2])) if given[1:] else NullFence()
        run_delivery(paths, make_delivery(read_spec(paths), paths, fence), sys.stdin, output)


def _later_arguments(messages: TextIO) -> list[str]:
    """The arguments of a process that was started ahead of its sweep; empty if there is none."""
    import tuning.controller.tracking.observer  # noqa: F401 - what a delivery needs
    from results.tracking import import_mlflow

    import_mlflow()
    arguments: list[str] = json.loads(messages.readline() or "[]")
    return arguments


def _send(output: TextIO, message: dict[str, str | None]) -> None:
    try:
        output.write(json.dumps(message) + "\n")
    except BrokenPipeError:  # the driver is dead; a resume delivers the rest
        os._exit(0)


if __name__ == "__main__":
    main()
