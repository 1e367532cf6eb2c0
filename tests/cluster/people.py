"""People of one machine: accounts that exist in a mount namespace only, so that root tests them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ENV
from tests.cli.conftest import ROOT

_FIRST_ID = 61_000
"""Beyond the ids that systems give to people."""

_BECOME = """
set -e
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
for home in "$1"/open/*; do
  [ -e "$home" ] || continue
  sh "$home/mounts"
done
cd "$2"; name=$3; shift 3
exec setpriv --reuid "$name" --regid "$name" --init-groups "$@"
"""


@dataclass(frozen=True)
class Person:
    """An account with a home and a group of its own.

    Attributes:
        folder: of all accounts.
    """

    name: str
    folder: Path

    @property
    def home(self) -> Path:
        """Private, as of any account."""
        return self.folder / "homes" / self.name

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Start a `tune` command in the home."""
        env = ENV | {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}
        env["XDG_CONFIG_HOME"] = str(self.home / ".config")
        become = ["unshare", "--mount", "sh", "-c", _BECOME, "sh", self.folder, self.home]
        return subprocess.Popen(
            [*become, self.name, sys.executable, "-m", "tuning", *args],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def tune(self, *args: str, code: int = 0) -> str:
        """Run a `tune` command in the home; returns what it prints."""
        with self.start(*args) as command:
            out, err = command.communicate()
        assert command.returncode == code, f"{self.name}: tune {' '.join(args)}\n{out}\n{err}"
        return out + err


def make_people(folder: Path, names: Iterable[str], team: Iterable[str]) -> list[Person]:
    """Make accounts; those of the `team` are also in the group of this name.

    Args:
        folder: that everybody may enter.
    """
    numbers = {name: _FIRST_ID + i for i, name in enumerate(names, 1)}
    people = [Person(name, folder) for name in numbers]
    lines = [f"{p.name}:x:{numbers[p.name]}:{numbers[p.name]}::{p.home}:/bin/sh\n" for p in people]
    groups = [f"{name}:x:{number}:\n" for name, number in numbers.items()]
    groups.append(f"team:x:{_FIRST_ID}:{','.join(team)}\n")
    for name, added in (("passwd", lines), ("group", groups)):
        (folder / name).write_text(Path("/etc", name).read_text() + "".join(added))
        (folder / name).chmod(0o644)
    for person in people:
        person.home.mkdir(parents=True)
        _own(person.home, numbers[person.name], numbers[person.name], 0o700)
    _open(folder / "open", {Path(sys.base_prefix), Path(sys.prefix), ROOT})
    return people


def make_team_storage(folder: Path) -> Path:
    """A storage of the team, as docs/reliability.md makes it."""
    storage = folder / "sweeps"
    storage.mkdir()
    _own(storage, 0, _FIRST_ID, 0o2770)
    return storage


def _own(path: Path, user: int, group: int, mode: int) -> None:
    os.chown(path, user, group)
    path.chmod(mode)


def _open(folder: Path, needed: set[Path]) -> None:
    """Let everybody read the program where it lies below somebody's closed home."""
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        for above in reversed(path.parents):
            if not above.stat().st_mode & stat.S_IXOTH:
                closed.setdefault(above, []).append(path)
                break
    for number, (above, paths) in enumerate(closed.items()):
        own = folder / str(number)
        lines = []
        for path in paths:
            inner = own / "tree" / path.relative_to(above)
            inner.mkdir(parents=True)
            lines.append(f"mount --bind '{path}' '{inner}'\n")
        lines.append(f"mount --rbind '{own / 'tree'}' '{above}'\n")
        (own / "mounts").write_text("".join(lines))
