"""Starts Ray's processes: they survive the driver's signals, and their loss is noticed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from results.own_program import PROGRAM, standard_library
from results.storage.atomic import open_private
from search_spaces.errors import UserError
from search_spaces.redaction import redact

log = logging.getLogger(__name__)

_POLL_S = 0.5
_PRINT = "print_to_stdstream"
"""The function by which Ray's listener prints; there is no setting for it."""
_LOOPBACK, _LOOPBACK_S = "127.0.0.1", 10.0
_GRACE_S = 20.0
"""Seconds for a session to end after the loss of its cluster."""


class RayStartError(UserError):
    """Ray did not start, as on a busy machine: the same command may succeed later."""

    exit_code = 4


@contextmanager
def local_cluster(folder: Path, lost: Callable[[str], None]) -> Iterator[None]:
    """Start a cluster on this machine while the block runs; a start that fails is tried once more.

    Args:
        folder: for Ray's files.
        lost: called once, in another thread, if a process of the cluster ends within the block.

    Raises:
        RayStartError: Ray does not start.
    """
    _require_loopback()
    try:
        started = connect(None, folder)
    except Exception as e:  # noqa: BLE001 - Ray raises bare exceptions too
        log.warning("Ray did not start (%s); trying once more", _sentence(e))
        try:
            started = connect(None, folder)
        except Exception as e:
            raise RayStartError(
                f"Ray does not start on this machine: {_sentence(e)}; free memory and space in "
                "the temporary folder, or set RAY_TMPDIR to another one, and try again"
            ) from e
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(started, ended, lost), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        shutdown()


def _require_loopback() -> None:
    """Ray's processes on this machine talk over 127.0.0.1; without it Ray tries for minutes."""
    try:
        with socket.create_server((_LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), _LOOPBACK_S).close()
    except OSError as e:
        raise RayStartError(
            f"Ray does not start: this machine does not reach itself at {_LOOPBACK} "
            f"({e.strerror or e}); switch its loopback interface on: ip link set lo up"
        ) from e


def connect(address: str | None, folder: Path | None = None) -> list[subprocess.Popen[bytes]]:
    """Connect to the Ray cluster at `address`; None: to one that is started on this machine.

    Args:
        folder: for the files of one that is started.

    Returns:
        The processes that were started.
    """
    import ray

    started: list[subprocess.Popen[bytes]] = []
    try:
        with _changed_ray(started):
            ray.init(
                address=address or "local",
                num_cpus=None if address else _allocated_cpus(),
                _temp_dir=None if folder is None else str(folder),
                include_dashboard=None if address else False,
                log_to_driver=False,
                dashboard_host="127.0.0.1",
                logging_level=logging.ERROR,
                job_config=_job_config(),
            )
    except BaseException:
        shutdown()
        for process in started:
            process.kill()
            process.wait()
        raise
    return started


def _job_config() -> Any:
    """Where the workers look for modules: in the driver's folders after what all processes need.

    Ray itself puts the working directory before the standard library, and before this program.
    """
    from ray.job_config import JobConfig

    script = os.path.dirname(os.path.realpath(sys.argv[0]))
    users = [str(Path.cwd()), *([script] if script in sys.path else [])]
    folders = [*standard_library(), str(PROGRAM), *users]
    config: Any = JobConfig(_py_driver_sys_path=folders[::-1])  # each is put before the last one
    config._runtime_env_has_working_dir = lambda: True  # so that Ray adds no folder
    return config


def _allocated_cpus() -> int | None:
    """CPUs of this machine that a job of Slurm has; Ray counts all. None: there is no such job."""
    count = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(count) if count.isdecimal() else None


def shutdown() -> None:
    """Leave the cluster, and end it if this process has started it."""
    import ray

    ray.shutdown()
    keep_signal_handler()


def keep_signal_handler() -> None:
    """Install Python's SIGTERM handler again: Ray's C++ part replaces it, and removes it later."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _watch(
    started: list[subprocess.Popen[bytes]], ended: threading.Event, lost: Callable[[str], None]
) -> None:
    while not ended.wait(_POLL_S):
        if (dead := next((p for p in started if p.poll() is not None), None)) is not None:
            code = dead.returncode
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            reason = f"Ray's process {_name(dead)} ended ({how})"
            lost(reason)
            _end_unless(ended, reason)
            return


def _end_unless(ended: threading.Event, reason: str) -> None:
    """End the process if the block is not left in time: a call of Ray's can wait for ever.

    Ray would do so after a minute, without a word. Files on disk are complete at any moment.
    """
    if not ended.wait(_GRACE_S):
        sys.stderr.write(f"{reason}, and the session does not end\n")
        sys.stderr.flush()
        os._exit(1)


@contextmanager
def _changed_ray(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Change within the block how Ray starts a cluster. Ray has no settings for these:

    - API server, log monitor and autoscaler are left out: a sweep uses none of them, and each takes
      about a second of imports before the first trial.
    - Processes for the broker and a first worker start at once, not one per CPU.
    - Its processes get process groups of their own. Else a signal to the driver's group (Ctrl-C,
      `timeout`, a terminal that closes) would end them before the driver.
    - The driver's SIGTERM handler stays: with Ray's own, the driver would exit at once.

    Args:
        started: gets the processes.
    """
    from ray._private import node, parameter, services, utils

    def popen(command: list[str], *args: Any, **settings: Any) -> subprocess.Popen[bytes]:
        started.append(original(_with_two_workers(command), *args, process_group=0, **settings))
        return started[-1]

    original = services.ConsolePopen
    params: Any = parameter.RayParams
    fewer = partial(params, no_monitor=True, include_log_monitor=False)
    changes: list[tuple[Any, str, Any]] = [
        (services, "ConsolePopen", popen),
        (utils, "set_sigterm_handler", lambda _: None),
        (parameter, "RayParams", fewer),
        (node.Node, "start_api_server", lambda *_, **__: None),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for change in before:
            setattr(*change)
        keep_signal_handler()


def _with_two_workers(command: list[str]) -> list[str]:
    """A raylet's command that starts processes for the broker and a worker; another as it is."""
    name = "--num_prestart_python_workers"
    return [f"{name}=2" if part.startswith(f"{name}=") else part for part in command]


def _name(process: subprocess.Popen[bytes]) -> str:
    assert isinstance(process.args, list)
    return Path(process.args[0]).name


def _sentence(error: Exception) -> str:
    line = next(iter(str(error).splitlines()), "")
    return line.partition(". ")[0] or type(error).__name__


@contextmanager
def ray_messages_to(file: Path) -> Iterator[None]:
    """Append Ray's messages to a file, not to the terminal, while the block runs.

    Ray prints what its processes publish: the end of a raylet's log when a machine is lost, or that
    it started many processes. The session says what it means for the sweep; the rest is for a bug
    report.
    """
    from ray._private import worker

    def write(data: dict[str, Any], ignore_prefix: bool) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(file, "a", opener=open_private) as f:
            f.writelines(f"{redact(line)}\n" for line in data["lines"])

    before = worker.print_to_stdstream
    setattr(worker, _PRINT, write)
    try:
        yield
    finally:
        setattr(worker, _PRINT, before)
