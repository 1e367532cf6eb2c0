"""A Ray cluster of this machine that takes jobs, for `tune up --jobs`; Ray is its only program."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from results.own_program import module_command, start
from results.storage.atomic import open_private
from results.sweep_folder.lock import start_times
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from tuning.cluster.local_cluster import apply_settings, closed_to_others
from tuning.cluster.session_folder import user_folder

_START_TIMEOUT_S = 30 * 24 * 3600
"""Seconds for which a job may wait; Ray's default is a quarter of an hour."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Head:
    """The process that holds the cluster.

    Attributes:
        born: its start, see `start_times`: process ids are used again.
        address: of the cluster's jobs.
        token: that they ask for.
        gcs: address of the cluster. Ray itself lets a job guess it, among all clusters of the
            machine.
    """

    pid: int
    born: float
    address: str
    token: str
    gcs: str


def running_head() -> Head | None:
    """That of this user; None: there is none."""
    try:
        head = Head(**parse_json(read_regular(_file())))
        return head if head.born in start_times(head.pid) else None
    except (OSError, ValueError, TypeError):
        return None


def start_head() -> Head:
    """Start it in the background.

    Raises:
        UserError: Ray does not start, or is installed without its jobs.
    """
    try:
        import ray.dashboard.optional_deps  # noqa: F401
    except ImportError as e:
        needs = "pip install 'tune-platform[jobs]'"
        raise UserError(f"tune up --jobs: needs {e.name}; install it with: {needs}") from e
    log = user_folder(create=True) / "jobs.log"
    with open(log, "wb", opener=open_private) as output:
        process = start(module_command(__name__), output)
    while (head := running_head()) is None and process.poll() is None:
        time.sleep(_POLL_S)
    if head is None:
        said = log.read_text(errors="replace").strip().splitlines()
        raise UserError(f"Ray does not start: {said[-1] if said else 'no reason given'} ({log})")
    return head


def end_head(head: Head) -> None:
    """End it, with all that runs in the cluster."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(head.pid)
        process.terminate()
        process.wait()


def _file() -> Path:
    return user_folder() / "jobs.json"


def main() -> None:
    """Hold the cluster until SIGTERM."""
    lock = open(user_folder(create=True) / "jobs.lock", "w")  # noqa: SIM115 - held to the end
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.environ["RAY_JOB_START_TIMEOUT_SECONDS"] = str(_START_TIMEOUT_S)
    apply_settings()
    with closed_to_others(None, lambda: False) as folder:
        import ray

        context = ray.init(
            "local",
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            logging_level=logging.ERROR,
            log_to_driver=False,
            _temp_dir=str(folder),
        )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        born, token = start_times(os.getpid())[0], os.environ["RAY_AUTH_TOKEN"]
        gcs = ray.get_runtime_context().gcs_address
        head = Head(os.getpid(), born, f"http://{context.dashboard_url}", token, gcs)
        try:
            with open(_file(), "w", opener=open_private) as file:
                json.dump(asdict(head), file)
            threading.Event().wait()
        finally:
            _file().unlink(missing_ok=True)
            ray.shutdown()


if __name__ == "__main__":
    main()
