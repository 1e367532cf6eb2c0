"""MLflow's SQLite files: their addresses; and none is ever half made.

MLflow makes the tables of a new file, and of an older version's, by some fifty migrations that take
seconds. A process that is killed meanwhile would leave a file that nothing opens any more. So they
run in a file of another name, which is then renamed.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from filelock import FileLock

from results.paths import Storage
from results.records.pipeline import pipelines_in
from results.storage.atomic import fsync_dir, quarantine_file
from results.storage.fault_injection import fault_point
from results.storage.sharing import is_shared
from search_spaces.errors import UserError, first_few

log = logging.getLogger(__name__)

_SIDECARS = ("-journal", "-wal", "-shm")
_CUT_OFF = re.compile("already exists|duplicate column|no such (table|column|index)")
"""SQLite's answer to a migration that goes on from one that was cut off."""


def sqlite_uri(file: Path) -> str:
    """The address of a file, in which SQLAlchemy reads `%`, `?` and `#` as in those of the web.

    MLflow makes the folder of a `sqlite:///` address, and takes its escapes for the name: those
    with escapes name the driver too, which prevents that.
    """
    quoted = str(file).translate({ord(c): f"%{ord(c):02X}" for c in "%?#"})
    return f"{'sqlite' if quoted == str(file) else 'sqlite+pysqlite'}:///{quoted}"


def sqlite_file(uri: str) -> Path | None:
    """The file of an address as SQLAlchemy reads it; None if it is that of no file."""
    if not uri.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    is_file = url.database and url.database != ":memory:" and "uri" not in url.query
    return Path(str(url.database)) if is_file else None


def prepare_database(uri: str) -> None:
    """Make the SQLite file of an address if it is missing; a storage's own is also repaired.

    That of an older version is migrated. An unreadable one is renamed: the sweep folders have what
    was in it, and a delivery brings it.

    Raises:
        UserError: that is not possible.
    """
    if (file := sqlite_file(uri)) is None:
        return
    from sqlalchemy.exc import SQLAlchemyError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if _is_current(file):
            return
        with FileLock(file.with_name(f".{file.name}.lock"), mode=_mode(file)):
            if not _is_current(file):  # another process may have made it
                _make(file)
    except OSError as e:
        raise UserError(f"MLflow: cannot create {file} ({e.strerror or e})") from e
    except (sqlite3.Error, SQLAlchemyError) as e:
        raise UserError(f"MLflow: cannot open {file} ({_reason(e)})") from e


def _is_current(file: Path) -> bool:
    """Whether all migrations of the installed MLflow ran in a file; False if it is damaged."""
    if not _has_content(file):
        return False
    try:
        with closing(sqlite3.connect(file)) as db:
            found = db.execute("select version_num from alembic_version").fetchall()
        return found == [(_newest_revision(),)]
    except sqlite3.Error as e:
        if not _is_damage(e):
            raise
        return False


@cache
def _newest_revision() -> str | None:
    import mlflow.store.db_migrations as migrations
    from alembic.script import ScriptDirectory

    return ScriptDirectory(migrations.__path__[0]).get_current_head()


def _make(file: Path) -> None:
    """Create, migrate or replace a file; one that is no storage's is left to MLflow."""
    from sqlalchemy.exc import SQLAlchemyError

    draft, storage = file.with_name(f".{file.name}.new"), Storage(file.parent)
    if not _has_content(file):
        _migrate(draft, None)
    elif file != storage.tracking_db or not any((*storage.sweeps(), *pipelines_in(storage))):
        return
    else:
        try:
            _migrate(draft, file)
        except (sqlite3.Error, SQLAlchemyError) as e:
            if not _is_damage(e):
                raise
            _set_aside(file, e)
            _migrate(draft, None)
    fault_point("mlflow.db:migrated")
    os.replace(draft, file)
    fsync_dir(file.parent)
    fault_point("mlflow.db:renamed")


def _migrate(draft: Path, source: Path | None) -> None:
    """Write the copy of a file, or a new one, with the tables of the installed MLflow."""
    from alembic.util.exc import CommandError
    from mlflow.store.db.utils import _initialize_tables
    from sqlalchemy import create_engine

    for left in (draft, *_sidecars(draft)):
        left.unlink(missing_ok=True)
    draft.touch(_mode(draft))
    if source is not None:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(draft)) as new:
            old.backup(new)
    engine = create_engine(sqlite_uri(draft))
    try:
        _initialize_tables(engine)  # type: ignore[no-untyped-call]
    except CommandError as e:
        draft.unlink()
        raise UserError(f"{source}: another version of MLflow made it ({e}); use that one") from e
    finally:
        engine.dispose()
    with open(draft, "rb") as f:
        os.fsync(f.fileno())


def _set_aside(file: Path, error: Exception) -> None:
    """Rename a file, and first its journal, which SQLite would play back into a new one."""
    for part in _sidecars(file):
        quarantine_file(part)
    kept, storage = quarantine_file(file), Storage(file.parent)
    names = [p.name for p in storage.sweeps()] + [p.name for p in pipelines_in(storage)]
    log.warning(
        "%s: not readable (%s), kept as %s; a new one is filled from the sweep folders: "
        "tune sync NAME, with %s",
        file,
        _reason(error),
        kept and kept.name,
        first_few(names),
    )


def _is_damage(error: Exception) -> bool:
    """Whether a file holds no database, or migrations that were cut off; False if it is locked."""
    error = getattr(error, "orig", None) or error
    passing = isinstance(error, sqlite3.OperationalError) and not _CUT_OFF.search(str(error))
    return isinstance(error, sqlite3.DatabaseError) and not passing


def _mode(file: Path) -> int:
    """That of new files: SQLite would let the group of a shared storage only read."""
    return 0o660 if is_shared(file.parent) else 0o600


def _has_content(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _sidecars(file: Path) -> list[Path]:
    return [file.with_name(file.name + end) for end in _SIDECARS]


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
