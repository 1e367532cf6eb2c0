"""The model that a trial begins with."""

from __future__ import annotations

from pathlib import Path

from search_spaces.errors import UserError


def require_folder(name: str) -> None:
    """Pass for a hub id, and for a folder of a model that is there.

    Raises:
        UserError: it is gone, with all that begins with it: a pipeline that was moved, for example.
    """
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise UserError(
            f"{name}: the model to begin with is not there; if its pipeline or sweep was moved, "
            "move it back, or make a link at the old place: ln -s NEW OLD"
        )
