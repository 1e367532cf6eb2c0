"""A trainable that tells its secrets in every way that we know of."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from typing import Any
from urllib.parse import quote

from pydantic import Field

from tests.ray.stepping import Stepping, SteppingConfig
from trainables.worker import Worker

CANARIES = {
    "HF_TOKEN": "canary/5d1e+7a90",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-3b7d",
    "GITLAB_PAT": "canary-pat-99c1",
    "DATABASE_URL": "postgresql://me:canary-db-04fe@db/x",
    "MY_LICENSE": "canary-license-77",
}
"""Variables of the environment; the sweep file names the last one."""


class LeakyConfig(SteppingConfig):
    """Settings of `Leaky`."""

    kind: str = Field(description="how the trial ends")


class Leaky(Stepping):
    """Prints its secrets at each step, and raises one at the third."""

    Config = LeakyConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        for name in CANARIES:
            value = os.environ[name]
            encoded = b64encode(f"me:{value}".encode()).decode()
            sys.stdout.write(f"step {number}: {name} is {value} {encoded}\n")
            sys.stdout.write(f"{name} {value[:7]}")
            sys.stdout.flush()
            os.write(1, f"{value[7:]}\n".encode())
            os.write(2, f"GET https://host/?token={quote(value, safe='')}\n".encode())
        if number == 3 and config.kind == "raises":
            raise ValueError(f"cannot log in with {os.environ['HF_TOKEN']}")
        if number == 3 and config.kind == "is_fatal":  # its processes end too
            raise MemoryError(f"no memory for {os.environ['MY_LICENSE']}")
        if number == 3 and config.kind == "aborts":
            os.write(2, f"last words {os.environ['GITLAB_PAT']}".encode())
            os.abort()
        return float(number)
