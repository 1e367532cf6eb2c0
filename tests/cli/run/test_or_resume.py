"""`tune run --or-resume`: one command that begins a sweep, continues it, and knows its end."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from results.storage.fault_injection import VARIABLE
from results.sweep_folder.copies.mirror import mirror_records
from results.sweep_folder.lock import acquire_lock
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import Tune
from tests.tuning.simulate import finish, open_run
from tuning.controller.sweep_dir.create import (
    changed_keys,
    create_sweep,
    discard_empty_sweep,
    find_existing,
)

SWEEP = """
name: job
trainable: loop.py:train
metric: loss
space: {x: {uniform: [-1.0, 1.0]}, opt: {k: {choice: [1, 2]}}}
fixed: {epochs: 4}
scheduler: {name: asha, grace_period: 1, max_t: 4}
budget: {trials: 3}
tracking: {name: none}
"""


@pytest.fixture
def file(tune: Tune) -> Path:
    tune.write("loop.py", "def train(config): report(config)\n")
    return tune.write("job.yaml", SWEEP)


def test_complete_sweep_is_not_run_again(tune: Tune, file: Path) -> None:
    paths = create_sweep(load_sweep(file), None, None)
    finish(open_run(paths.root, load_sweep(paths.spec).spec))
    output = tune("run", file, "--or-resume").out
    assert "trials 3 finished" in output
    assert [p.name for p in (tune.cwd / "sweeps").iterdir()] == ["job"]


def test_changed_file_is_named_and_does_not_change_the_sweep(tune: Tune, file: Path) -> None:
    paths = create_sweep(load_sweep(file), None, None)
    finish(open_run(paths.root, load_sweep(paths.spec).spec))
    before = paths.spec.read_bytes()
    same = tune("run", file, "--or-resume").out
    assert "differs" not in same
    changed = tune("run", file, "--or-resume", "--set", "fixed.epochs=5").out
    assert "differs from the sweep that has begun in fixed; it continues as it is" in changed
    assert paths.spec.read_bytes() == before


def test_second_command_is_refused_while_the_first_drives(tune: Tune, file: Path) -> None:
    paths = create_sweep(load_sweep(file), None, None)
    with acquire_lock(paths.lock):
        assert "job" in tune.refused("run", file, "--or-resume")


def test_refused_command_leaves_what_another_one_drives(tune: Tune, file: Path) -> None:
    """Of two commands that begin a sweep, one makes the folder, and the other may lock it."""
    paths = create_sweep(load_sweep(file), None, None)
    with acquire_lock(paths.lock):
        discard_empty_sweep(paths)
        assert paths.is_sweep
    discard_empty_sweep(paths)
    assert not paths.root.exists()


@pytest.mark.parametrize("write", [1, 2])
def test_folder_that_cannot_be_written_is_removed(
    tune: Tune, file: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    monkeypatch.setenv(VARIABLE, f"state.json:written:{write}=ENOSPC")
    assert "then run the command again" in tune.refused("run", file)
    assert not any(tune.cwd.glob("sweeps/*"))


def test_name_decides_which_sweep_is_meant(tune: Tune, file: Path) -> None:
    loaded = load_sweep(file)
    create_sweep(loaded, None, None)
    create_sweep(loaded, None, None)  # job-2 is another sweep
    assert find_existing(loaded, None, None) == str(tune.cwd / "sweeps" / "job")
    assert find_existing(loaded, "other", None) is None
    assert find_existing(loaded, None, str(tune.cwd / "elsewhere")) is None


def test_mirror_is_found_where_the_folder_is_lost(tune: Tune, file: Path) -> None:
    mirror = (tune.cwd / "far").as_uri()
    loaded = load_sweep(file, [f"checkpoint.mirror={mirror}"])
    assert find_existing(loaded, None, None) is None
    paths = create_sweep(loaded, None, None)
    with ExitStack() as stack:
        fence = stack.enter_context(acquire_lock(paths.lock))
        stack.enter_context(mirror_records(paths, loaded.spec, fence))
        finish(open_run(paths.root, load_sweep(paths.spec).spec))
    assert find_existing(loaded, None, None) == str(paths.root)
    shutil.rmtree(paths.root)
    assert find_existing(loaded, None, None) == f"{mirror}/job"


def test_frozen_sweep_is_the_same_as_its_file(tune: Tune) -> None:
    for name in ("llm", "digits", "sft", "command"):
        loaded = load_sweep(Path(__file__).parents[3] / "search_spaces" / f"{name}.yaml")
        paths = create_sweep(loaded, None, str(tune.cwd / "sweeps"))
        assert changed_keys(str(paths.root), loaded) == []
