"""Serves MLflow's pages on the loopback interface and opens that of the sweeps' runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from results.paths import Storage, SweepPaths
from results.records.pipeline import outer_storage
from results.records.spec_file import read_spec
from results.storage.probe import check_storage
from results.sweep_folder.folder import read_state, resolve_storage
from results.tracking import (
    comparison_url,
    curves_url,
    experiment_url,
    ui_command,
    ui_environment,
)
from results.tracking.mlflow.client import connect
from results.tracking.mlflow.database import sqlite_file
from search_spaces.errors import UserError
from tuning.cli.formatting import echo
from tuning.controller.tracking.observer import default_tracking_uri, experiment_of, tracking_uri

_HOST = "127.0.0.1"
_START_S = 90.0


def serve(paths: Sequence[SweepPaths], storage: str | None, port: int, browser: bool) -> None:
    """Print and open the page, and serve it until Ctrl-C; a remote tracking server serves itself.

    Raises:
        UserError: the sweeps have different tracking servers, or the port is taken.
    """
    root = outer_storage(paths[0]) if paths else resolve_storage(storage)
    uri = _uri(paths, root)
    if uri.startswith(("http://", "https://")):
        _show_pages(_pages(uri, uri, paths), browser)
        return
    if sqlite_file(uri) == root.tracking_db:
        check_storage(root.root)  # MLflow tries for a minute, then shows its log
    connect(uri)  # makes the database, or sets an unreadable one aside
    for signum in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a script's background
        signal.signal(signum, signal.default_int_handler)
    pages = _pages("", uri, paths)
    short = {what: f"/{what or 'runs'}" for what in pages}
    addresses = {short[what]: page for what, page in pages.items()}
    with suppress(KeyboardInterrupt), _server(uri, root.artifacts, port, addresses) as base:
        _show_pages({what: f"{base}{path}" for what, path in short.items()}, browser)
        echo("serving on this machine only; Ctrl-C ends it")
        signal.pause()


def _uri(sweeps: Sequence[SweepPaths], root: Storage) -> str:
    uris = [tracking_uri(read_spec(paths), paths) for paths in sweeps]
    for paths, uri in zip(sweeps, uris, strict=True):
        if uri != uris[0]:
            raise UserError(
                f"{sweeps[0].name} and {paths.name} have different tracking servers: "
                "open them one by one"
            )
    return uris[0] if uris else default_tracking_uri(root)


def _pages(base: str, uri: str, sweeps: Sequence[SweepPaths]) -> dict[str, str]:
    """What each page shows, and its address; the first one is opened."""
    if not sweeps:
        return {"": f"{base}/#/experiments"}
    spec = read_spec(sweeps[0])
    experiment, *others = {experiment_of(read_spec(paths), paths) for paths in sweeps}
    view = None if sweeps[1:] else _view(uri, sweeps[0], experiment)
    runs = {} if others else {"": experiment_url(base, uri, experiment, view)}
    try:
        page = comparison_url(base, uri, [read_state(paths).key for paths in sweeps])
    except UserError:  # no run was sent yet
        return runs or {"": f"{base}/#/experiments"}
    compared = f"{runs['']}&compareRunsMode=CHART" if view else page
    return {**runs, "comparison": compared, "curves": curves_url(page, spec.metric)}


def _view(uri: str, paths: SweepPaths, experiment: str) -> str | None:
    """The key of the view of a sweep: the parameters that matter come first."""
    from results.report.sweep_data import read_sweep_data
    from results.tracking.mlflow.pages import params_first, store_view
    from tuning.search.importance import importances

    try:
        data = read_sweep_data(paths)
    except UserError:  # its records are damaged: the caller has said so
        return None
    found = importances(data)[:1]
    names = list(dict.fromkeys(name for e in data.summaries for name in e.record.params))
    params = params_first(names, [name for one in found for name in one.shares])
    metrics, key = [o.metric for o in data.spec.objectives], read_state(paths).key
    lowest = data.spec.mode == "min"
    return store_view(uri, experiment, key, metrics, params, ascending=lowest)


def _show_pages(pages: Mapping[str, str], browser: bool) -> None:
    for what, page in pages.items():
        echo(f"{what} {page}".lstrip())
    if browser:
        webbrowser.open(next(iter(pages.values())))


@contextmanager
def _server(uri: str, artifacts: Path, port: int, addresses: Mapping[str, str]) -> Iterator[str]:
    port = port or _free_port()
    if _responds(f"http://{_HOST}:{port}/"):
        raise UserError(
            f"--port {port}: taken on {_HOST}; choose another, or --port 0 for a free one"
        )
    command = ui_command(artifacts, _HOST, port)
    env = {**os.environ, **ui_environment(uri, addresses)}
    with tempfile.TemporaryFile() as log:  # shown only if the server does not start
        server = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            base = f"http://{_HOST}:{port}"
            _wait_until_ready(server, f"{base}/health", log)
            yield base
        finally:
            server.terminate()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while not _responds(url):
        if server.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-5:]
            problem = f"MLflow's server did not start (exit code {server.poll()}); its output:"
            raise UserError(problem, *tail)
        time.sleep(0.2)


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((_HOST, 0))
        return int(s.getsockname()[1])
