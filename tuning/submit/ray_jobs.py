"""Ray Jobs: a Ray cluster that runs already takes a sweep's command, over its HTTP interface."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from search_spaces.errors import UserError, suggest
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.submit.engine import ENDS, Engine, Job, JobState, match_id
from tuning.submit.ray_head import running_head

_ANSWER_S = 30.0
_STOP_S = 120
"""Seconds in which a stopped driver saves checkpoints. Ray's own limit is 3."""
_OPTIONS = {"entrypoint_num_cpus": float, "entrypoint_num_gpus": float, "entrypoint_memory": int}
"""Those of Ray's jobs that `--with` takes: what the driver itself holds of the cluster."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class RayJobs(Engine):
    """The jobs of one Ray cluster.

    https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html

    Args:
        place: address of its dashboard; None: `$RAY_API_SERVER_ADDRESS`, or that of
            `tune up --jobs`.
    """

    def __init__(self, place: str | None = None) -> None:
        head = running_head()
        known = head.address if head is not None else ""
        self.place = (place or os.environ.get("RAY_API_SERVER_ADDRESS") or known).rstrip("/")
        if not self.place:
            raise UserError(
                "ray: no cluster is known; name it by --address http://HOST:8265, or start one on "
                "this machine: tune up --jobs"
            )
        if urlsplit(self.place).scheme not in ("http", "https"):
            raise UserError(f"--address {self.place}: must be like http://HOST:8265")
        self._head = head if head is not None and head.address == self.place else None

    def check(self, sweeps: Sequence[LoadedSweep], options: Sequence[str]) -> list[str]:
        """See that the cluster takes jobs of this user."""
        _parsed(options)
        self._ask("GET", "/api/jobs/")
        if self._head is not None:
            return []
        return [
            "Ray fails a job that waits for more than 15 minutes, unless the cluster was started "
            "with RAY_JOB_START_TIMEOUT_SECONDS"
        ]

    def submit(self, job: Job) -> str:
        """Let the cluster's head run the command, with this working directory."""
        log = shlex.quote(str(job.paths.log))
        where = [] if self._head is None else ["--address", self._head.gcs]
        command = f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join([*job.command, *where])}"
        body = {
            "entrypoint": f"{command} >> {log} 2>&1",
            "submission_id": f"{job.paths.name}-{secrets.token_hex(4)}",
            "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S)}},
            **_parsed(job.options),
        }
        return str(self._ask("POST", "/api/jobs/", body)["submission_id"])

    def state(self, job_id: str) -> JobState:
        """Its state, and how it ended."""
        try:
            found = self._ask("GET", _path(job_id))
        except _Unknown:
            return JobState.ended("its cluster does not know it")
        except _Refused:
            if urlsplit(self.place).hostname not in _LOOPBACK:
                raise
            return JobState.ended("its cluster has ended")
        status = str(found["status"]).lower()
        if status in ("pending", "running"):
            return JobState(status)
        return JobState.ended(_failure(found) if status == "failed" else status)

    def cancel(self, job_id: str) -> str:
        """Let the driver get SIGTERM, upon which it pauses the sweep."""
        waits = self.state(job_id).words == "pending"
        self._ask("POST", f"{_path(job_id)}/stop")
        return "ends once Ray has started it: Ray takes back no job that waits" if waits else ENDS

    @property
    def running(self) -> list[str]:
        """Ids of the jobs that run."""
        jobs = self._ask("GET", "/api/jobs/")
        return [j["submission_id"] for j in jobs if j["status"] == "RUNNING" and j["submission_id"]]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data, url = None if body is None else json.dumps(body).encode(), self.place + path
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if (token := self._token) else {}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with _OPENER.open(request, timeout=_ANSWER_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                raise _explained(self.place, e.code, e.read().decode(errors="replace")) from None
        except (OSError, ValueError, HTTPException) as e:
            reason = getattr(e, "reason", e)
            kind = _Refused if isinstance(reason, ConnectionRefusedError) else UserError
            said = str(reason).strip()
            raise kind(f"ray: no cluster answers at {self.place} ({said})") from None

    @property
    def _token(self) -> str:
        if self._head is not None:
            return self._head.token
        given, path = os.environ.get("RAY_AUTH_TOKEN", ""), os.environ.get("RAY_AUTH_TOKEN_PATH")
        if given or path is None:
            return given
        try:
            return Path(path).read_text().strip()
        except OSError as e:
            raise UserError(f"RAY_AUTH_TOKEN_PATH {path}: {e.strerror}") from e


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another place would get the token."""

    def redirect_request(self, *_: object) -> None:
        """Leave it an error."""


_OPENER = urllib.request.build_opener(_NoRedirect)


class _Unknown(UserError):
    """The cluster has no such job."""


class _Refused(UserError):
    """Nothing listens at the address."""


def _explained(place: str, code: int, said: str) -> UserError:
    """The error for a status of HTTP other than 200."""
    if code in (401, 403):
        has = "does not take this token" if code == 403 else "asks for a token"
        return UserError(f"ray: {place} {has}; set RAY_AUTH_TOKEN to that of the cluster")
    line = next(iter(said.strip().splitlines()[-1:]), "")
    if code == 404:
        return _Unknown(f"ray: {place}: {line or 'takes no jobs'}")
    return UserError(f"ray: {place}: {line or code}")


def _failure(found: dict[str, Any]) -> str:
    """Why a job failed."""
    if (code := found.get("driver_exit_code")) is not None:
        return f"exit code {code}"
    return " ".join(str(found.get("message") or "failed").split()).partition(". ")[0]


def _parsed(options: Sequence[str]) -> dict[str, float]:
    """The options of `--with` as the fields of a job."""
    given = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in _OPTIONS:
            raise UserError(f"--with {option}: no option of a job of Ray{suggest(name, _OPTIONS)}")
        try:
            given[name] = _OPTIONS[name](value)
        except ValueError:
            raise UserError(f"--with {option}: must be a number") from None
    return given


def _path(job_id: str) -> str:
    return "/api/jobs/" + match_id("ray", r"[\w.-]+", job_id)[0]
