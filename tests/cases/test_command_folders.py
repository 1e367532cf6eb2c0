"""Folders of a command's program: its own checkpoints by their names, and its project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.checkpoints.commit import newest_intact
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.user_code.conftest import python, run_command
from trainables.user_code.command import project_view
from trainables.user_code.command.program import CommandError
from tuning.controller.preflight.checks import preflight

EPOCHS = """
import os, pathlib, re
from tune_report import checkpoint_dir, report
folder, epoch = checkpoint_dir(), 0
if folder:
    assert os.listdir(os.path.dirname(folder)) == [os.path.basename(folder)]
    assert pathlib.Path(folder, "state").read_text() == os.path.basename(folder)
    epoch = int(re.fullmatch("epoch_([0-9]+)", os.path.basename(folder))[1]) + 1
out = pathlib.Path("output") / ("epoch_%d" % epoch)
out.mkdir(parents=True)
(out / "state").write_text(out.name)
report(step=3 * epoch + 3, loss=1, checkpoint=out)
"""


def test_program_gets_its_checkpoint_back_by_the_name_that_it_gave(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        channel = run_command(tmp_path / "t", python(EPOCHS), attempt=attempt)
        assert list(channel.curve) == [3 * attempt]
    found = newest_intact(TrialPaths(tmp_path / "t"))
    assert found is not None
    assert (found.folder / "state").read_text() == "epoch_2"


READS = """
import os, pathlib, sys
from tune_report import report
value = float(open("data/train.csv").read())
open("data/new.csv", "w").write("2")
open("data/train.csv", "w").write("9")
if len(sys.argv) > 1:
    open("data/large.bin", "a").write("more")
report(loss=value)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, its data, and what belongs to no view."""
    monkeypatch.setattr(project_view, "_COPIED", 100)
    folder = tmp_path / "project"
    for name in ("data", ".git", "__pycache__", "sweeps/other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.csv").write_text("1")
    (folder / "data" / "large.bin").write_bytes(bytes(101))
    (folder / "train.py").write_text(READS)
    return folder


def test_view_of_the_project_is_read_and_what_is_written_stays_with_the_trial(
    project: Path,
) -> None:
    paths = TrialPaths(project / "sweeps" / "s" / "trials" / "t")
    command = ["python", f"{project}/train.py"]
    run = run_command(paths.root, command, cwd="project")
    assert run.curve == {1: {"loss": 1.0}}
    assert sorted(os.listdir(paths.work)) == ["data", "train.py"]
    assert (project / "data" / "train.csv").read_text() == "1"
    assert sorted(os.listdir(project / "data")) == ["large.bin", "train.csv"]
    assert (paths.work / "data" / "large.bin").is_symlink()
    assert not paths.warning(1).exists()
    again = run_command(paths.root, command, cwd="project", attempt=2)
    assert again.curve == {1: {"loss": 9.0}}  # what the first attempt wrote
    run_command(paths.root, [*command, "appends"], cwd="project", attempt=3)
    assert "large.bin" in paths.warning(3).read_text()


def test_missing_file_is_named_with_the_folder_in_which_it_was_searched(project: Path) -> None:
    paths = TrialPaths(project / "t")
    with pytest.raises(CommandError, match="cwd: project") as caught:
        run_command(paths.root, ["python", f"{project}/train.py"])
    assert str(paths.work) in str(caught.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("command: [python, train.py, '{x}']", ""),
        (
            "command: [sh, -c, 'true {x}']",
            "s.yaml:3: cwd: project needs a command that names a file",
        ),
        ("trainable: digits", "project is for a command"),
    ],
)
def test_plan_knows_whether_there_is_a_project(project: Path, code: str, message: str) -> None:
    (project / "s.yaml").write_text(
        f"name: s\n{code}\ncwd: project\nmetric: loss\nspace: {{x: {{choice: [1]}}}}\n"
        "scheduler: {name: none}\nbudget: {trials: 1}\n"
    )
    try:
        preflight(load_sweep(project / "s.yaml"), files=True)
    except UserError as e:
        assert message
        assert message in str(e)
    else:
        assert not message


def test_large_project_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_view, "_MOST_FILES", 2)
    with pytest.raises(UserError, match="more than 2 files"):
        project_view.make_view(project, project / "sweeps")
