"""Syne Tune's multi-fidelity methods, in a separate environment.

`$SYNE_TUNE_PYTHON` is a Python with `syne-tune[gpsearchers]==0.13.0`. It runs
`syne_tune_server.py`; the two processes exchange lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.search.simulate import Attempt, Contender
from benchmarks.search.tasks import Task


class SyneTune(Contender):
    """One of Syne Tune's schedulers; it makes proposals, pauses and promotes trials."""

    def __init__(self, task: Task, seed: int, method: str) -> None:
        python = os.environ.get("SYNE_TUNE_PYTHON")
        if python is None:
            raise SystemExit("--slow: set SYNE_TUNE_PYTHON to a Python with syne-tune 0.13")
        self._cpu = 0.0
        server = Path(__file__).with_name("syne_tune_server.py")
        self._process = subprocess.Popen(
            [python, "-I", str(server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._epochs: dict[str, int] = {}
        self._ask({"method": method, "space": task.space, "epochs": task.epochs, "seed": seed})

    def next(self) -> Attempt | None:
        said = self._ask({"next": True})
        if said is None:
            return None
        trial, config = said["trial"], said["config"]
        return Attempt(trial, config, self._epochs.get(trial, 0))

    def report(self, trial: str, epoch: int, error: float) -> bool:
        self._epochs[trial] = epoch
        return bool(self._ask({"trial": trial, "epoch": epoch, "error": error}))

    def clock(self) -> float:
        return time.process_time() + self._cpu

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("Syne Tune's process ended; what it said stands above")
        answer = json.loads(line)
        self._cpu = answer["cpu"]
        return answer["said"]
