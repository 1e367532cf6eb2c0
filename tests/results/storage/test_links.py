from __future__ import annotations

from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.storage.sharing import refuse_outside_links
from search_spaces.errors import UserError


def test_link_out_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "sweep")
    trial = paths.trial("t0000")
    trial.logs.mkdir(parents=True)
    trial.work.mkdir()
    (trial.root / "inside").symlink_to(paths.trials)
    (trial.work / "data").symlink_to(tmp_path)  # the user's code may have its data there
    refuse_outside_links(paths.root)
    (trial.logs / "outside").symlink_to(tmp_path)
    with pytest.raises(UserError, match=f"{trial.logs}/outside: is a link to {tmp_path}, outside"):
        refuse_outside_links(paths.root)
