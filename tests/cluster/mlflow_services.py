"""MLflow's server with a PostgreSQL database and an S3 bucket, which can be killed and started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psycopg2

from results.tracking import ui_environment
from tests.object_store import BUCKET
from tests.results.tracking.servers import answers, free_port

_PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
_USER = "postgres" if os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""
START_S = 200.0


def why_not() -> str | None:
    """Why the services cannot run here; None if they can."""
    if _PROGRAMS is None and shutil.which("initdb") is None:
        return "needs PostgreSQL's server"
    return None


class Services:
    """PostgreSQL and MLflow in a folder; the bucket is that of `tests.object_store`.

    Args:
        folder: of the database, in one that everybody may enter; it is given to its user.
        log: of MLflow's server.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder, self._data, self._log = folder, folder / "data", log
        self._port, self._database_port = free_port(), free_port()
        self._server: subprocess.Popen[bytes] | None = None
        if _USER is not None:
            shutil.chown(folder, _USER)
        self._postgres("initdb", "--auth=trust", "--username=mlflow", "--no-sync", *self._at)

    def __enter__(self) -> Services:
        """Start both."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End both."""
        self.kill()

    @property
    def uri(self) -> str:
        """Address of MLflow's server."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def database(self) -> str:
        """Address of the database."""
        return f"postgresql+psycopg2://{self._login}"

    @property
    def _login(self) -> str:
        return f"mlflow@127.0.0.1:{self._database_port}/postgres"

    def start(self) -> None:
        """Start both, and wait until MLflow answers."""
        options = f"-p {self._database_port} -h 127.0.0.1 -k {self._folder}"
        log = str(self._folder / "postgres.log")
        self._postgres("pg_ctl", "start", "-w", "-l", log, "-o", options, *self._at)
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        files = ["--serve-artifacts", "--artifacts-destination", f"s3://{BUCKET}/mlflow"]
        with self._log.open("ab") as output:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *where, *files],
                env={**os.environ, **ui_environment(self.database)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not answers(f"{self.uri}/health"):
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self._log.read_text())
            time.sleep(0.1)

    def kill(self) -> None:
        """End both without a warning, as a machine that is lost."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
            self._postgres("pg_ctl", "stop", "-m", "immediate", *self._at)
            self._server = None

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the database."""
        connection = psycopg2.connect(f"postgresql://{self._login}")
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                found: list[tuple[object, ...]] = cursor.fetchall()
        finally:
            connection.close()
        return found

    @property
    def _at(self) -> Sequence[str]:
        return ("-D", str(self._data))

    def _postgres(self, program: str, *args: str) -> None:
        path = str(_PROGRAMS / program) if _PROGRAMS else program
        subprocess.run(
            [path, *args],
            cwd=self._folder,
            user=_USER,
            check=True,
            timeout=START_S,
            stdout=subprocess.DEVNULL,
        )
