"""A checkpoint belongs to its trial: another trial's is never taken for it."""

import os
from pathlib import Path

import pytest

from results.checkpoints.binding import binding_of
from results.checkpoints.cleanup import copy_checkpoint, quarantine_damaged
from results.checkpoints.commit import (
    MANIFEST,
    Manifest,
    damaged_checkpoints,
    newest_intact,
)
from results.paths import SweepPaths
from results.records.trial import TrialRecord, write_trial
from results.trial_paths import TrialPaths
from tests.results.written import write_checkpoint
from tests.trainables.checkpointing.test_saver import WatchedTrial, saving
from tests.trainables.user_code.kept import add_manifest
from trainables.user_code.ray_train.checkpoints import newest_first, verify_kept

WEIGHTS = {"model.safetensors": "weights"}


def trial(sweep: SweepPaths, number: int, identity: str) -> TrialPaths:
    """A trial with a checkpoint at step 3."""
    paths = sweep.trial(f"t{number:04d}")
    record = TrialRecord(
        id=paths.root.name, number=number, params={}, config={}, seed=0, created=1e9
    )
    write_trial(paths, record.model_copy(update={"identity": identity}))
    write_checkpoint(paths, 3, WEIGHTS)
    return paths


def exchange(one: TrialPaths, other: TrialPaths) -> None:
    aside = one.root / "aside"
    os.rename(one.checkpoints, aside)
    os.rename(other.checkpoints, one.checkpoints)
    os.rename(aside, other.checkpoints)


@pytest.mark.parametrize(("sweep", "number"), [("a", 1), ("b", 0)])
def test_checkpoint_of_another_trial_is_named_and_not_used(
    tmp_path: Path, sweep: str, number: int
) -> None:
    own = trial(SweepPaths(tmp_path / "a"), 0, "one")
    other = trial(SweepPaths(tmp_path / sweep), number, "two")
    exchange(own, other)
    assert newest_intact(own) is None
    (problem,) = damaged_checkpoints(own)
    assert f"another trial, {other.root.name}" in problem.reason
    assert quarantine_damaged(own) is None
    assert own.checkpoint_steps() == []


def test_worker_starts_anew_instead_of_from_another_trials_weights(tmp_path: Path) -> None:
    both = [WatchedTrial(tmp_path / sweep / "t0000") for sweep in ("a", "b")]
    for identity, one in zip(("one", "two"), both, strict=True):
        record = TrialRecord(id="t0000", number=0, params={}, config={}, seed=0, created=1e9)
        write_trial(one.paths, record.model_copy(update={"identity": identity}))
        worker = one.start()
        worker.report(step=1, metrics={}, checkpoint=saving())
        worker.close()
    own = both[0]
    resumed = own.start(attempt=2)
    assert resumed.resume() is not None
    resumed.close()
    exchange(*(one.paths for one in both))
    anew = own.start(attempt=3)
    assert anew.resume() is None
    anew.close()


def test_checkpoint_of_another_trial_is_known_by_its_id_if_the_record_was_rebuilt(
    tmp_path: Path,
) -> None:
    own, other = (trial(SweepPaths(tmp_path / "a"), n, "") for n in (0, 1))
    assert newest_intact(own) is not None
    exchange(own, other)
    assert newest_intact(own) is None


def test_trial_keeps_its_checkpoints_in_a_copy_and_after_its_record_was_rebuilt(
    tmp_path: Path,
) -> None:
    trial(SweepPaths(tmp_path / "a"), 0, "one")
    os.rename(tmp_path / "a", tmp_path / "moved")
    moved = SweepPaths(tmp_path / "moved").trial("t0000")
    assert newest_intact(moved) is not None
    moved.record.unlink()
    assert newest_intact(moved) is not None


def test_repetition_of_a_trial_may_have_its_checkpoints(tmp_path: Path) -> None:
    known = trial(SweepPaths(tmp_path / "a"), 0, "one")
    same = trial(SweepPaths(tmp_path / "b"), 7, "one")
    exchange(known, same)
    assert newest_intact(same) is not None


def test_inherited_checkpoint_says_whose_weights_it_has(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "a")
    donor, heir = (trial(sweep, number, f"of {number}") for number in (0, 1))
    write_checkpoint(donor, 4, WEIGHTS)
    found = newest_intact(donor)
    assert found is not None
    copy_checkpoint(heir, found)
    taken = newest_intact(heir)
    assert taken is not None
    assert taken.manifest.binding == binding_of(heir, "t0000 at step 4")


def test_checkpoint_of_an_older_version_is_used_and_said_to_be_unbound_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = trial(SweepPaths(tmp_path / "a"), 0, "one")
    file = own.checkpoint(3) / MANIFEST
    manifest = Manifest.model_validate_json(file.read_bytes())
    file.write_text(
        manifest.model_copy(update={"binding": None}).model_dump_json(exclude_none=True)
    )
    for _ in range(3):
        assert newest_intact(own) is not None
    assert len([r for r in caplog.records if "do not say whose" in r.getMessage()]) == 1


def test_checkpoint_that_ray_train_keeps_is_bound_too(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "a")
    own, other = (trial(sweep, number, f"of {number}") for number in (0, 1))
    folder = own.ray_train_attempt(1) / "checkpoint_000000"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_text("weights")
    add_manifest(own, folder, 3)
    (kept,) = newest_first(own, own.ray_train_attempts())
    assert verify_kept(own, kept).binding == binding_of(own)
    os.rename(own.ray_train, other.ray_train)
    (moved,) = newest_first(other, other.ray_train_attempts())
    with pytest.raises(Exception, match="another trial, t0000"):
        verify_kept(other, moved)
