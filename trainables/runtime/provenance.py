"""Records code, data, versions and hardware of a trial, to run it again and compare."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from results.records import environment
from results.records.environment import Environment
from results.trial_paths import TrialPaths

if TYPE_CHECKING:
    import torch

_spot: bool | None = None
_GENERATION = "2"
"""Of generation on a GPU, whose log-probabilities a change may round otherwise."""
_LIBRARIES = ("tune-platform", "ray", "torch", "numpy", "transformers", "scikit-learn")


def note_market(kind: str | None) -> None:
    """Record from now on what this machine was bought as: `spot`, another name, or unknown."""
    global _spot
    _spot = kind == "spot" if kind else None


def current_environment(
    source: Mapping[str, str], device: torch.device, workers: int
) -> Environment:
    """Code, versions and hardware with which this process runs a trainable.

    Args:
        source: digests of the training code's files, see `Trainable.source`.
        device: of rank 0.
        workers: number of ranks.
    """
    import torch

    hardware = {
        **_device_facts(device),
        "processor": _processor(),
        "workers": str(workers),
        "threads": str(torch.get_num_threads()),
        **_nccl_settings(),
    }
    return Environment(
        source=dict(source),
        versions=dict(library_versions()),
        hardware=hardware,
        host=socket.gethostname(),
        spot=_spot,
    )


class ProvenanceRecorder:
    """Records the environment of an attempt, beside its logs; rank 0 only."""

    def __init__(self, paths: TrialPaths, attempt: int, device: torch.device, workers: int) -> None:
        self._paths, self._attempt, self._device, self._workers = paths, attempt, device, workers
        self._environment: Environment | None = None

    def begin(self, source: Mapping[str, str]) -> None:
        """Record the environment of the attempt; see `current_environment`."""
        self._environment = current_environment(source, self._device, self._workers)
        environment.write(self._paths, self._attempt, self._environment)

    def log_dataset(self, fingerprint: str) -> None:
        """Add the fingerprint of the data."""
        if self._environment is not None:
            update = {"data": fingerprint}
            self._environment = self._environment.model_copy(update=update)
            environment.write(self._paths, self._attempt, self._environment)


def _device_facts(device: torch.device) -> dict[str, str]:
    import torch

    if device.type != "cuda":
        return {"device": "cpu"}
    memory = torch.cuda.get_device_properties(device).total_memory
    return {
        "device": torch.cuda.get_device_name(device),
        "device_memory": f"{memory / 2**30:.1f} GiB",
        "driver": driver_version(),
    }


def _nccl_settings() -> dict[str, str]:
    """Variables that change how NCCL computes; the interface is of the machine, and often ours."""
    found = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    found.pop("NCCL_SOCKET_IFNAME", None)
    return found


def driver_version(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The version of NVIDIA's driver, such as 580.159.04, from its own file in Linux."""
    try:
        found = re.search(r"\s(\d+\.[\d.]+)\s", file.read_text())
    except OSError:
        found = None
    return found[1] if found else "unknown"


@cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """(name, version) of Python, `generation`, and the libraries that affect results."""
    found = [("python", platform.python_version()), ("generation", _GENERATION)]
    for name in _LIBRARIES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)


@cache
def _processor() -> str:
    """The processor's name: its instructions determine the last bits of sums."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
