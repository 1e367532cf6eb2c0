"""What a prepared driver and a command must have in common: folder, environment, code.

A driver runs a command only if everything that it read when it started is still the same.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from sysconfig import get_path
from typing import Any

from results.own_program import PACKAGES, PROGRAM
from tuning.cluster.session_folder import user_folder

_TERMINAL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|TERM_.*|COLORTERM|COLUMNS|LINES|WINDOWID|WINDOW|STY|TMUX.*|SSH_.*"
    r"|XDG_SESSION_.*|VTE_VERSION|PS1|DISPLAY|WAYLAND_DISPLAY|VSCODE_.*"
)
"""Variables that differ between terminals. Trials of a prepared driver do not have them."""
_INSTALLED = (
    *{get_path("stdlib"), get_path("purelib"), get_path("platlib")},
    *(f"{PROGRAM / name}{os.sep}" for name in PACKAGES),
)


def terminal_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that describe a terminal."""
    return {k: v for k, v in environment.items() if _TERMINAL.fullmatch(k)}


def identity() -> dict[str, Any]:
    """What this process has in common with the processes that it starts; no secret can be read."""
    values = {k: v for k, v in os.environ.items() if not _TERMINAL.fullmatch(k)}
    # Python adds the folder of the script, or the working directory, depending on how it is started
    added = {"", str(Path.cwd()), str(Path(sys.executable).parent)}
    path = [folder for folder in sys.path if folder not in added]
    return {
        "installation": [sys.executable, str(Path(__file__).parent), *path],
        "working directory": str(Path.cwd()),
        "environment": {k: hashlib.sha256(v.encode()).hexdigest() for k, v in values.items()},
    }


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first difference of two identities, in words; None if they are equal."""
    for key in ("working directory", "installation"):  # the first may change the second
        if one[key] != other[key]:
            return f"another {key}"
    variables = [{*side["environment"].items()} for side in (one, other)]
    names = sorted({name for name, _ in variables[0] ^ variables[1]})
    return f"other environment variables ({', '.join(names[:5])})" if names else None


class LoadedCode:
    """The files of all modules that this process has imported, and of installed packages.

    Args:
        since: Unix seconds before the first import: a file that changed later may be half read.
        files: others that it has read.
    """

    def __init__(self, since: float, files: Iterable[Path] = ()) -> None:
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._early: str | None = None
        self._add({*map(str, files), *(p for p in sys.path if p.endswith("site-packages"))}, since)
        self.grow(since)

    def grow(self, since: float) -> set[str]:
        """Add what has been imported since a time; returns files that are not of a package."""
        files = {str(getattr(m, "__file__", None) or "") for m in [*sys.modules.values()]}
        new = files - self._stamps.keys() - {""}
        self._add(new, since)
        return {file for file in new if not file.startswith(_INSTALLED)}

    def changed(self) -> str | None:
        """A file that is not as it was when it was imported."""
        now = (name for name, stamp in self._stamps.items() if _stamp(name) != stamp)
        return self._early or next(now, None)

    def _add(self, files: set[str], since: float) -> None:
        stamps = {name: _stamp(name) for name in files}
        early = (name for name, stamp in stamps.items() if stamp and stamp[0] / 1e9 >= since)
        self._early = self._early or next(early, None)
        self._stamps |= stamps


def _stamp(file: str) -> tuple[int, int] | None:
    """When a file changed, also if it was replaced by an older one; None if it is not there."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size


def socket_path(*, create: bool = False) -> Path:
    """The socket of this user's `tune up`; see `user_folder`."""
    return user_folder(create=create) / "socket"
