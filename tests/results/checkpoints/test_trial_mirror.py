"""A trial's checkpoints in object storage: complete or absent, whenever the sender dies."""

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import Report, read_reports
from results.storage.object_store import ContentMismatchError, ObjectStore
from results.sweep_folder.copies.checkpoint_mirror import (
    OWNER,
    MirrorLocation,
    OwnershipTakenError,
    TrialMirror,
)
from results.trial_paths import TrialPaths
from tests.object_store import BUCKET
from tests.reports import append_report
from tests.results.checkpoints.damage import content, save

ROOT = Path(__file__).parents[3]
TOKEN = "0123456789abcdef"


slow = pytest.mark.slow


@pytest.fixture(params=[pytest.param("s3", marks=slow), "file"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> MirrorLocation:
    name, base = f"sweep-{time.monotonic_ns()}", (tmp_path / "far").as_uri()
    if request.param == "s3":
        request.getfixturevalue("server")
        base = f"s3://{BUCKET}/some/where"
    found = MirrorLocation(base, name, TOKEN)
    found.open().put(OWNER, json.dumps({"token": TOKEN}).encode())
    return found


def train(paths: TrialPaths, step: int) -> None:
    append_report(paths, Report(step=step, metrics={"loss": step}, attempt=1, time=step))
    save(paths, step)


def sent(location: MirrorLocation, paths: TrialPaths, *steps: int, attempt: int = 1) -> TrialMirror:
    mirror = TrialMirror(location, "t0000", attempt)
    for step in steps:
        train(paths, step)
        mirror.send(paths, step)
    return mirror


def checkpoints(location: MirrorLocation) -> ObjectStore:
    return location.open().within("trials/t0000/checkpoints")


def prefixes(location: MirrorLocation) -> set[str]:
    """Names of the checkpoints in the mirror, complete or not."""
    return {key.partition("/")[0] for key in checkpoints(location).sizes("")}


def fetched(
    location: MirrorLocation, folder: Path, attempt: int = 2
) -> tuple[int | None, TrialPaths]:
    fresh = TrialPaths(folder / "elsewhere" / "t0000")
    return TrialMirror(location, "t0000", attempt).fetch(fresh, -1), fresh


def test_mirror_restores_a_checkpoint_on_another_machine(
    location: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    sent(location, paths, 5, 12)
    step, fresh = fetched(location, tmp_path)
    newest = newest_intact(fresh)
    assert newest is not None
    assert step == newest.step == 12
    assert content(fresh) == "weights of 12"
    assert (newest.folder / "nested" / "rng.json").read_text() == "{}"
    assert read_reports(fresh) == read_reports(paths)
    assert TrialMirror(location, "t0000", 2).fetch(fresh, 12) is None


def damage(location: MirrorLocation, key: str, data: bytes | None) -> None:
    if data is None:
        checkpoints(location).remove(key)
    else:
        checkpoints(location).put(key, data)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("files/model.safetensors", b"weights of 13"),  # of the same size
        ("files/model.safetensors", b"weig"),
        ("files/nested/rng.json", None),
        ("manifest.json", b'{"step": 12, "fil'),
        ("manifest.json", b'{"step": 12, "files": {"../../x": {"size": 2, "sha256": ""}}}'),
    ],
    ids=["flipped", "truncated", "missing", "torn", "outside"],
)
def test_mirror_skips_a_damaged_checkpoint(
    location: MirrorLocation,
    paths: TrialPaths,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file: str,
    data: bytes | None,
) -> None:
    sent(location, paths, 5, 12)
    name = "step_00000012.attempt_0001.01234567"
    damage(location, f"{name}/{file}", data)
    with caplog.at_level(logging.WARNING):
        step, fresh = fetched(location, tmp_path)
    assert step == 5
    assert fresh.checkpoint_steps() == [5]
    assert f"{name} is damaged" in caplog.text
    assert f"{name}/manifest.json.damaged" in checkpoints(location).sizes("")
    assert fetched(location, tmp_path)[0] == 5


def test_mirror_ignores_a_checkpoint_without_manifest(
    location: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    mirror = sent(location, paths, 5, 12)
    checkpoints(location).remove("step_00000012.attempt_0001.01234567/manifest.json")
    assert fetched(location, tmp_path)[0] == 5
    train(paths, 15)
    mirror.send(paths, 15)
    mirror.prune(2, lambda steps: set())  # removes the rest of the incomplete one
    assert prefixes(location) == {f"step_000000{s}.attempt_0001.01234567" for s in ("05", "15")}


def test_mirror_prunes_only_when_the_newest_is_complete(
    location: MirrorLocation, paths: TrialPaths
) -> None:
    mirror = sent(location, paths, 1, 2, 3, 4)
    newest = "step_00000004.attempt_0001.01234567"
    checkpoints(location).put(f"{newest}/files/model.safetensors", b"?")
    mirror.prune(1, lambda steps: set())
    assert len(prefixes(location)) == 4
    mirror.send(paths, 4)
    asked: list[list[int]] = []

    def protected(steps: object) -> set[int]:
        asked.append(list(steps))  # type: ignore[call-overload]
        return {1}

    mirror.prune(2, protected)
    left = {name.partition(".")[0] for name in prefixes(location)}
    assert left == {"step_00000001", "step_00000003", "step_00000004"}
    assert asked == [[1, 2, 3, 4]]


def test_mirror_refuses_a_driver_that_lost_the_sweep(
    location: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    late = sent(location, paths, 5)
    newer = replace(location, token="f" * 16)
    newer.open().put(OWNER, json.dumps({"token": newer.token}).encode())
    train(paths, 6)
    with pytest.raises(OwnershipTakenError):
        late.send(paths, 6)
    assert fetched(newer, tmp_path)[0] == 5
    # an attempt that the new driver does not know sent its checkpoint for no record
    assert fetched(newer, tmp_path / "b", attempt=1)[0] is None
    with pytest.raises(OwnershipTakenError):
        TrialMirror(replace(newer, token="e" * 16), "t0000", 1).discard_unknown()
    TrialMirror(newer, "t0000", 1).discard_unknown()
    assert not any(key.endswith("manifest.json") for key in checkpoints(location).sizes(""))


def test_mirror_does_not_send_a_damaged_checkpoint(
    location: MirrorLocation, paths: TrialPaths
) -> None:
    train(paths, 5)
    (paths.checkpoint(5) / "model.safetensors").write_text("weights of 6")
    with pytest.raises(ContentMismatchError):
        TrialMirror(location, "t0000", 1).send(paths, 5)
    assert not any(key.endswith("manifest.json") for key in checkpoints(location).sizes(""))


SENDER = """
import json, sys
from pathlib import Path
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation, TrialMirror
from results.trial_paths import TrialPaths
from tests.results.checkpoints.test_trial_mirror import train
location, paths = MirrorLocation(*json.loads(sys.argv[1])), TrialPaths(Path(sys.argv[2]))
mirror = TrialMirror(location, "t0000", 1)
for step in (1, 2, 3):
    train(paths, step)
    mirror.send(paths, step)
    mirror.prune(1, lambda steps: set())
"""


KILLS = {"file:3": 1, "files:2": 1, "manifest:2": 2, "discarding:1": 2, "pruned:2": 2}
"""Where the sender is killed, and the newest complete checkpoint at that time."""


@slow
def test_mirror_survives_a_killed_sender(server: str, tmp_path: Path) -> None:
    locations = {p: MirrorLocation(f"s3://{BUCKET}", p.replace(":", "-"), TOKEN) for p in KILLS}
    processes = []
    for point, location in locations.items():
        location.open().put(OWNER, json.dumps({"token": TOKEN}).encode())
        given = json.dumps([location.address, location.sweep, location.token])
        command = [sys.executable, "-c", SENDER, given, str(tmp_path / location.sweep / "t0000")]
        environ = {**os.environ, "TUNE_CRASH_AT": f"mirror:{point}"}
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environ))
    assert [process.wait(timeout=100) for process in processes] == [-9] * len(KILLS)
    for point, location in locations.items():
        step, fresh = fetched(location, tmp_path / f"of-{location.sweep}")
        assert step == KILLS[point]
        assert content(fresh) == f"weights of {step}"
