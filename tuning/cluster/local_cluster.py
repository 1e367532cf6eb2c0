"""Ray's settings, and what keeps other users and machines out of a cluster on this machine."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.storage.log_filter import no_core_dumps
from trainables.launch.lanes import LANE
from trainables.launch.ray_train import OWN_CLUSTER
from tuning.cluster.session_folder import session_folder

_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the sweep folder has our own records
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the CLI has its own
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a missing metric fails its trial, not the sweep
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # Tune's own state is a cache that resume never reads
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a lane's thread that outlives the cluster must not start one
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # a second copy of the output, secrets included
}

_LANES_END_S = 2.0


def apply_settings() -> None:
    """Set Ray's settings in the environment, before Ray is imported."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


@contextmanager
def closed_to_others(logs: Path | None, failed: Callable[[], bool]) -> Iterator[Path]:
    """Close what is started within the block to other users and machines.

    Args:
        logs, failed: see `session_folder`.

    Yields:
        The folder for Ray's files.
    """
    with session_folder(logs, failed) as folder, no_core_dumps(), _closed_environment():
        yield folder


@contextmanager
def _closed_environment() -> Iterator[None]:
    """A token that no other cluster has, and listeners on the loopback interface only.

    Ray calls its setting after the systems on which it is the default. Ray's own way to a token is
    a file in the user's home, which then opens every cluster that was started without its own.
    """
    from ray import _raylet
    from ray._private import ray_constants

    tokens: Any = _raylet.AuthenticationTokenLoader.instance()  # type: ignore[attr-defined]
    values: dict[str, str | None] = {
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_AUTH_MODE": None,  # Ray then turns tokens on
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        OWN_CLUSTER: "1",
    }
    before = {name: os.environ.get(name) for name in values}
    clusters = ray_constants.ENABLE_RAY_CLUSTER
    try:
        ray_constants.ENABLE_RAY_CLUSTER = False
        _set_environment(values)
        tokens.reset_cache()
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters
        if _lanes_have_ended():
            _set_environment(before)
            tokens.reset_cache()


def _lanes_have_ended() -> bool:
    """Whether no thread of a lane is left, which would look for the token: without one, Ray's C++
    part aborts the process. A session that ends with an error does not wait for all of them.
    """
    deadline = time.monotonic() + _LANES_END_S
    lanes = [t for t in threading.enumerate() if t.name.startswith(LANE)]
    for lane in lanes:
        lane.join(max(0.0, deadline - time.monotonic()))
    return not any(lane.is_alive() for lane in lanes)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
