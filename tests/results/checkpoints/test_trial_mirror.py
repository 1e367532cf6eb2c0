"""A trial's checkpoints in object storage: whole or not there, whenever the sender dies."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.checkpoints.commit import commit, create_staging, newest_intact, staging_folder
from results.checkpoints.trial_mirror import OWNER, MirrorLocation, OwnershipTakenError, TrialMirror
from results.paths import TrialPaths
from results.records.trial import Report, append_report, read_reports
from results.storage.object_store import (
    ContentMismatchError,
    ObjectStore,
    check_object_store,
    open_object_store,
)
from results.storage.retry import FIRST_PAUSE_S
from search_spaces.errors import UserError
from tests.object_store import BUCKET, s3_server
from tests.results.tracking.servers import failing_server, free_port

ROOT = Path(__file__).parents[3]
TOKEN = "0123456789abcdef"


slow = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=[pytest.param("s3", marks=slow), "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> MirrorLocation:
    name, base = f"sweep-{time.monotonic_ns()}", (tmp_path / "far").as_uri()
    if request.param == "s3":
        request.getfixturevalue("server")
        base = f"s3://{BUCKET}/some/where"
    found = MirrorLocation(base, name, TOKEN)
    found.open().put(OWNER, json.dumps({"token": TOKEN}).encode())
    return found


@pytest.fixture
def paths(tmp_path: Path) -> TrialPaths:
    return TrialPaths(tmp_path / "here" / "t0000")


def save(paths: TrialPaths, step: int, text: str = "") -> None:
    append_report(paths, Report(step=step, metrics={"loss": step}, attempt=1, time=step))
    folder = staging_folder(paths, step, 1)
    create_staging(folder)
    (folder / "model.safetensors").write_text(text or f"weights of {step}")
    (folder / "nested").mkdir()
    (folder / "nested" / "rng.json").write_text("{}")
    commit(folder, paths.checkpoint(step), step=step)


def sent(place: MirrorLocation, paths: TrialPaths, *steps: int, attempt: int = 1) -> TrialMirror:
    mirror = TrialMirror(place, "t0000", attempt)
    for step in steps:
        save(paths, step)
        mirror.send(paths, step)
    return mirror


def checkpoints(place: MirrorLocation) -> ObjectStore:
    return place.open().within("trials/t0000/checkpoints")


def fetched(place: MirrorLocation, folder: Path, attempt: int = 2) -> tuple[int | None, TrialPaths]:
    fresh = TrialPaths(folder / "elsewhere" / "t0000")
    return TrialMirror(place, "t0000", attempt).fetch(fresh, -1), fresh


def test_another_machine_goes_on_from_it(
    place: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    sent(place, paths, 5, 12)
    step, fresh = fetched(place, tmp_path)
    newest = newest_intact(fresh)
    assert newest is not None
    assert step == newest.step == 12
    assert (newest.folder / "model.safetensors").read_text() == "weights of 12"
    assert (newest.folder / "nested" / "rng.json").read_text() == "{}"
    assert read_reports(fresh) == read_reports(paths)
    assert TrialMirror(place, "t0000", 2).fetch(fresh, 12) is None


def damage(place: MirrorLocation, key: str, data: bytes | None) -> None:
    if data is None:
        checkpoints(place).remove(key)
    else:
        checkpoints(place).put(key, data)


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
def test_a_damaged_one_is_put_aside_and_the_one_before_is_taken(
    place: MirrorLocation,
    paths: TrialPaths,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file: str,
    data: bytes | None,
) -> None:
    sent(place, paths, 5, 12)
    name = "step_00000012.attempt_0001.01234567"
    damage(place, f"{name}/{file}", data)
    with caplog.at_level(logging.WARNING):
        step, fresh = fetched(place, tmp_path)
    assert step == 5
    assert fresh.checkpoint_steps() == [5]
    assert f"{name} is damaged" in caplog.text
    assert f"{name}/manifest.json.damaged" in checkpoints(place).sizes("")
    assert fetched(place, tmp_path)[0] == 5


def test_without_a_manifest_it_does_not_exist(
    place: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    mirror = sent(place, paths, 5, 12)
    checkpoints(place).remove("step_00000012.attempt_0001.01234567/manifest.json")
    assert fetched(place, tmp_path)[0] == 5
    save(paths, 15)
    mirror.send(paths, 15)
    mirror.prune(2, lambda steps: set())  # and what is left of it goes
    names = {key.partition("/")[0] for key in checkpoints(place).sizes("")}
    assert names == {f"step_000000{s}.attempt_0001.01234567" for s in ("05", "15")}


def test_the_good_ones_stay_until_a_newer_one_is_whole(
    place: MirrorLocation, paths: TrialPaths
) -> None:
    mirror = sent(place, paths, 1, 2, 3, 4)
    newest = "step_00000004.attempt_0001.01234567"
    checkpoints(place).put(f"{newest}/files/model.safetensors", b"?")
    mirror.prune(1, lambda steps: set())
    assert len({key.partition("/")[0] for key in checkpoints(place).sizes("")}) == 4
    mirror.send(paths, 4)
    asked: list[list[int]] = []

    def protected(steps: object) -> set[int]:
        asked.append(list(steps))  # type: ignore[call-overload]
        return {1}

    mirror.prune(2, protected)
    left = {key.partition(".")[0] for key in checkpoints(place).sizes("")}
    assert left == {"step_00000001", "step_00000003", "step_00000004"}
    assert asked == [[1, 2, 3, 4]]


def test_a_driver_that_lost_the_sweep_sends_nothing_that_counts(
    place: MirrorLocation, paths: TrialPaths, tmp_path: Path
) -> None:
    late = sent(place, paths, 5)
    newer = MirrorLocation(place.address, place.sweep, "f" * 16)
    newer.open().put(OWNER, json.dumps({"token": newer.token}).encode())
    save(paths, 6)
    with pytest.raises(OwnershipTakenError):
        late.send(paths, 6)
    assert fetched(newer, tmp_path)[0] == 5
    # what its attempt had sent before is of no record either, if the new one never heard of it
    assert fetched(newer, tmp_path / "b", attempt=1)[0] is None
    with pytest.raises(OwnershipTakenError):
        TrialMirror(
            MirrorLocation(place.address, place.sweep, "e" * 16), "t0000", 1
        ).discard_unknown()
    TrialMirror(newer, "t0000", 1).discard_unknown()
    assert not any(key.endswith("manifest.json") for key in checkpoints(place).sizes(""))


def test_a_checkpoint_that_is_damaged_here_is_not_sent(
    place: MirrorLocation, paths: TrialPaths
) -> None:
    save(paths, 5)
    (paths.checkpoint(5) / "model.safetensors").write_text("weights of 6")
    with pytest.raises(ContentMismatchError):
        TrialMirror(place, "t0000", 1).send(paths, 5)
    assert not any(key.endswith("manifest.json") for key in checkpoints(place).sizes(""))


DIES = """
import json, sys
from pathlib import Path
from results.checkpoints.trial_mirror import MirrorLocation, TrialMirror
from results.paths import TrialPaths
from tests.results.checkpoints.test_trial_mirror import save
place, paths = MirrorLocation(*json.loads(sys.argv[1])), TrialPaths(Path(sys.argv[2]))
mirror = TrialMirror(place, "t0000", 1)
for step in (1, 2, 3):
    save(paths, step)
    mirror.send(paths, step)
    mirror.prune(1, lambda steps: set())
"""


KILLS = {"file:3": 1, "files:2": 1, "manifest:2": 2, "discarding:1": 2, "pruned:2": 2}
"""Where the sender is killed, to the newest whole one that is there then."""


@slow
def test_a_sender_that_is_killed_leaves_a_whole_one(server: str, tmp_path: Path) -> None:
    places = {p: MirrorLocation(f"s3://{BUCKET}", p.replace(":", "-"), TOKEN) for p in KILLS}
    processes = []
    for point, place in places.items():
        place.open().put(OWNER, json.dumps({"token": TOKEN}).encode())
        given = json.dumps([place.address, place.sweep, place.token])
        command = [sys.executable, "-c", DIES, given, str(tmp_path / place.sweep)]
        environ = {**os.environ, "TUNE_CRASH_AT": f"mirror:{point}"}
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environ))
    assert [process.wait(timeout=100) for process in processes] == [-9] * len(KILLS)
    for point, place in places.items():
        step, fresh = fetched(place, tmp_path / f"of-{place.sweep}")
        assert step == KILLS[point]
        found = newest_intact(fresh)
        assert found is not None
        assert (found.folder / "model.safetensors").read_text() == f"weights of {step}"


@slow
def test_what_is_wrong_is_said_in_one_line(server: str, tmp_path: Path) -> None:
    check_object_store(open_object_store(f"s3://{BUCKET}/not/there/yet"))
    check_object_store(open_object_store(tmp_path.as_uri()))
    with pytest.raises(UserError, match="there is no bucket 'nowhere'; make it, or name another"):
        check_object_store(open_object_store("s3://nowhere/x"))
    for wrong in ("bucket/x", "ftp://host/x", "s3://", "s3://bucket/x?nosuch=1"):
        with pytest.raises(UserError, match="write s3://bucket/prefix"):
            open_object_store(wrong)
    unreachable = f"s3://{BUCKET}/x?scheme=http&endpoint_override=127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match=r"^s3://bucket/x: cannot be reached \(.*AWS_ENDPOINT_URL$"):
        check_object_store(open_object_store(unreachable))


@slow
def test_a_storage_that_fails_is_tried_a_few_times(
    server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with failing_server() as url, caplog.at_level(logging.WARNING):
        host = url.removeprefix("http://")
        objects = open_object_store(f"s3://{BUCKET}/x?scheme=http&endpoint_override={host}")
        with pytest.raises(OSError, match="AWS Error"):
            objects.read("key")
    assert len(pauses) == 4
    assert all(0.5 <= p / (FIRST_PAUSE_S * 2**n) <= 1.5 for n, p in enumerate(pauses))
    assert caplog.text.count("trying again in") == 4
    pauses.clear()
    with pytest.raises(OSError, match="NO_SUCH_BUCKET"):
        open_object_store("s3://nowhere/x").put("key", b"")
    assert pauses == []  # what cannot pass is not tried again
