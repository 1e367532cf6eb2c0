"""Notices other packages in place of this program's own, before one of them is imported.

Their four names are plain words: another distribution may install a package `results`, and Python
prefers what lies in the working directory for `python -m tuning`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_NAMES = ("search_spaces", "results", "trainables", "tuning")
_MARK = b"tune-platform"
"""Stands in the `__init__.py` of each."""


def check_own_packages() -> None:
    """End the program with exit code 2 and one line if a package is not the one beside this file.

    Only the place of a package is looked up, which takes less than a millisecond for all. An
    `__init__.py` that another distribution has put over ours, in the same folder, counts too.
    """
    for name in _NAMES:
        spec, own = find_spec(name), _ROOT / name
        place = Path(spec.origin) if spec and spec.origin else None
        folders = [*((spec and spec.submodule_search_locations) or ())]
        if place and place.parent.resolve() == own.resolve() and _MARK in place.read_bytes():
            continue
        shown = place or next(iter(folders), "not installed")
        sys.stderr.write(
            f"the package {name} is not that of tune-platform: {shown}; rename or uninstall that "
            f"one, or run tune from elsewhere (ours belongs in {own})\n"
        )
        sys.exit(2)
