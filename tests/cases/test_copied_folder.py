"""A copied sweep folder is a sweep of its own; a moved one stays the one that it was."""

import shutil
from pathlib import Path

import pytest

from results.models.stages import StageRecords, original_of, write_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.sweep_folder.folder import SweepState, read_state, separate_copy, write_state
from results.sweep_folder.trust import is_trusted


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """A sweep folder that a session has used."""
    paths = SweepPaths(tmp_path / "llm")
    paths.root.mkdir()
    paths.spec.write_text("name: llm\n")
    write_state(paths, SweepState("key", (1.0,), (2.0,)))
    assert separate_copy(paths) == []
    return paths


def test_copy_gets_a_key_of_its_own_and_names_the_original(sweep: SweepPaths) -> None:
    copy = SweepPaths(shutil.copytree(sweep.root, sweep.root.with_name("copy")))
    (line,) = separate_copy(copy)
    assert f"is a copy of {sweep.root}" in line
    assert read_state(copy).key != "key"
    assert read_state(copy).spent == (2.0,)
    assert is_trusted(copy)
    assert separate_copy(copy) == separate_copy(sweep) == []
    assert read_state(sweep).key == "key"


def test_moved_folder_keeps_its_key(sweep: SweepPaths) -> None:
    moved = SweepPaths(sweep.root.rename(sweep.root.with_name("moved")))
    assert separate_copy(moved) == []
    assert read_state(moved).key == "key"


def test_folder_with_two_names_is_no_copy(sweep: SweepPaths) -> None:
    link = sweep.root.with_name("link")
    link.symlink_to(sweep.root)
    assert separate_copy(SweepPaths(link)) == []
    assert read_state(sweep).key == "key"


def test_copied_pipeline_names_its_original(tmp_path: Path) -> None:
    original = PipelinePaths(tmp_path / "stories")
    original.root.mkdir()
    places = (str(original.root),)
    write_stages(original, StageRecords(identity="one", places=places))
    copy = PipelinePaths(shutil.copytree(original.root, tmp_path / "copy"))
    assert original_of(copy) == original.root
    assert original_of(original) is None
    shutil.rmtree(original.root)
    assert original_of(copy) is None
