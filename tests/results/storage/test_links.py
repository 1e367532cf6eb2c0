from __future__ import annotations

from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.storage.links import refuse_outside_links
from search_spaces.errors import UserError


def test_link_out_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "sweep")
    trial = paths.trial("t0000")
    trial.logs.mkdir(parents=True)
    (trial.root / "inside").symlink_to(paths.trials)
    refuse_outside_links(paths.root)
    (trial.logs / "outside").symlink_to(tmp_path)
    with pytest.raises(UserError, match=f"{trial.logs}/outside: is a link to {tmp_path}, outside"):
        refuse_outside_links(paths.root)


def test_user_code_may_have_links_in_its_working_directory(tmp_path: Path) -> None:
    """For example to its data set."""
    paths = SweepPaths(tmp_path / "sweep")
    work = paths.trial("t0000").work
    work.mkdir(parents=True)
    (work / "data").symlink_to(tmp_path)
    refuse_outside_links(paths.root)
