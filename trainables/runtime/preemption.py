"""Handles SIGTERM and notices: at the next report the ranks agree, save a checkpoint and leave.

The handler only records the signal, and restores the previous handler for a second SIGTERM. Clouds
say by a metadata server that they take a machine away soon:

AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
Google: https://cloud.google.com/compute/docs/instances/create-use-spot
Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

_why = ""
"""Why the process leaves; empty: it was not asked to."""


class Preempted(Exception):
    """The process was asked to terminate; its trial resumes elsewhere from the last checkpoint."""


def preemption_requested() -> bool:
    """Whether this process was asked to leave: by SIGTERM, or by `request_preemption`."""
    return bool(_why)


def request_preemption(why: str) -> None:
    """Let the trial of this process leave at its next report."""
    global _why
    _why = why


def preemption_reason() -> str:
    """Why this process was asked to leave; of a rank that was not: why another one was."""
    return _why or "a process got SIGTERM, or its machine is taken away"


def install_sigterm_handler() -> Callable[[], None]:
    """Record SIGTERM from now on. Main thread only.

    Returns:
        A function that restores the old handler and clears the recorded signal.
    """
    before: Any = signal.getsignal(signal.SIGTERM)

    def note(signum: int, frame: FrameType | None) -> None:
        request_preemption("a process got SIGTERM")
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)

    def restore() -> None:
        signal.signal(signal.SIGTERM, before)
        request_preemption("")  # no longer

    return restore


def install_sigterm_handler_deferred() -> None:
    """Install the SIGTERM handler from another thread than the main one, as Ray Train needs it.

    The interpreter runs a pending call as soon as the main thread runs any Python; under Ray Train
    that is its next poll.
    """
    ctypes.pythonapi.Py_AddPendingCall(_IN_MAIN_THREAD, None)


def _install(_: int | None) -> int:
    install_sigterm_handler()
    return 0


_IN_MAIN_THREAD = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_install)


_INTERVAL_S = 5.0
"""Clouds give 30 seconds; an exchange between ranks waits for their devices."""

SumAll = Callable[[Mapping[str, float]], Mapping[str, float]]


class LeaveCheck:
    """Counts steps. The ranks exchange what they know at the same steps, about every five seconds.

    Args:
        sum_all: the sums over all ranks of each value.
        world_size: number of ranks.
    """

    def __init__(self, sum_all: SumAll, world_size: int) -> None:
        self._sum_all, self._world_size = sum_all, world_size
        self._steps, self._every = 0, 1
        self._since = time.perf_counter()

    def step(self) -> bool:
        """Whether all ranks leave after this step; the same on every rank."""
        self._steps += 1
        if self._world_size == 1:
            return preemption_requested()
        if self._steps < self._every:
            return False
        now = time.perf_counter()
        said = {"leave": float(preemption_requested()), "seconds": now - self._since}
        summed = self._sum_all(said)
        each = summed["seconds"] / self._world_size / self._steps
        self._every = max(1, min(2 * self._every, int(_INTERVAL_S / max(each, 1e-9))))
        self._steps, self._since = 0, now
        return summed["leave"] > 0


GRACE_S: Mapping[str, float] = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
"""Seconds from a cloud's notice to the end of its machine, at least."""

_DMI = Path("/sys/class/dmi/id")
_MARKS = {
    ("sys_vendor", "Amazon EC2"): "aws",
    ("product_name", "Google Compute Engine"): "gcp",
    ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"): "azure",
}
_TIMEOUT_S = 2.0
_direct = build_opener(ProxyHandler({}))  # a metadata server answers its own machine only


def cloud_here(dmi: Path = _DMI) -> str | None:
    """The cloud that this machine belongs to, by the names in its firmware; None: of none."""
    for (name, mark), cloud in _MARKS.items():
        file = dmi / name
        if file.is_file() and file.read_text().strip() == mark:
            return cloud
    return None


def read_notice(cloud: str) -> str | None:
    """What the cloud says of this machine's end; None if it says nothing.

    The server's address is the cloud's, or in the variable that its own libraries read:
    `AWS_EC2_METADATA_SERVICE_ENDPOINT`, `GCE_METADATA_HOST`, `AZURE_POD_IDENTITY_AUTHORITY_HOST`.

    Raises:
        OSError: the server cannot be reached, or refuses.
        ValueError: its answer is not what the cloud documents.
    """
    return {"aws": _aws, "gcp": _gcp, "azure": _azure}[cloud]()


def _aws() -> str | None:
    server = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
    server = server.rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _text(Request(f"{server}/latest/api/token", headers=lifetime, method="PUT"))
    about = f"{server}/latest/meta-data/spot/instance-action"
    try:
        found = _text(Request(about, headers={"X-aws-ec2-metadata-token": token}))
    except HTTPError as e:
        if e.code == 404:  # there is none yet
            return None
        raise
    said = json.loads(found)
    return f"AWS: {said['action']} at {said['time']}"


def _gcp() -> str | None:
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    about = f"http://{host}/computeMetadata/v1/instance/preempted"
    said = _text(Request(about, headers={"Metadata-Flavor": "Google"}))
    return "Google: preempted" if said.strip() == "TRUE" else None


def _azure() -> str | None:
    server = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://169.254.169.254")
    about = f"{server.rstrip('/')}/metadata"
    asked = {"Metadata": "true"}
    name = f"{about}/instance/compute/name?api-version=2021-02-01&format=text"
    events = f"{about}/scheduledevents?api-version=2020-07-01"
    preempted = [
        event
        for event in json.loads(_text(Request(events, headers=asked)))["Events"]
        if event["EventType"] in ("Preempt", "Terminate")
    ]
    if not preempted:
        return None
    machine = _text(Request(name, headers=asked)).strip()  # events are those of a whole group
    mine = [event for event in preempted if machine in event["Resources"]]
    return f"Azure: {mine[0]['EventType']} not before {mine[0]['NotBefore']}" if mine else None


def _text(request: Request) -> str:
    with _direct.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())
