"""Files are private, contain no secret, and stay in the storage folder."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.checkpoints.commit import CheckpointError, verify
from results.records.trial import read_trial
from results.storage.atomic import append_line, write_atomic
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.redaction import NAMES
from tests.cli.conftest import DIGITS, ROOT, Tune, add_checkpoint
from tuning.controller.preflight.checks import preflight

CANARY = "canary-b2f1c0de"


@pytest.fixture(autouse=True)
def restore_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (f"fixed.note={CANARY}", "fixed.note"),
        (f"description=with {CANARY} in it", "description"),
        ("fixed.hub.api_key=abc", "fixed.hub.api_key"),
        ("fixed.data=https://me:pa55@host/data", "fixed.data"),
        ("tracking.uri=http://me:pa55@host", "tracking.uri"),
    ],
)
def test_secret_in_a_sweep_file_is_refused_and_not_printed(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, change: str, place: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    monkeypatch.setenv("RAY_ADDRESS", "")
    output = tune.refused("run", DIGITS, "--set", change)
    assert f"{place}: holds a secret, which would be written down; " in output
    assert "pa55" not in output.partition("holds")[2]
    assert not (tune.cwd / "sweeps").exists()


def test_secret_that_the_sweep_file_names_is_refused(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAMES, "")
    monkeypatch.setenv("MY_LICENSE", CANARY)
    changes = ("--set", f"fixed.note={CANARY}", "--set", "redact=[MY_LICENSE]")
    assert "fixed.note: holds a secret" in tune.refused("run", DIGITS, *changes)
    assert "redact: needs names like MY_LICENSE or CORP_*, got 'a-b'" in tune.refused(
        "run", DIGITS, "--set", "redact=[a-b]"
    )


def test_secret_from_the_environment_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SERVER", "http://me:pa55@host")
    assert preflight(load_sweep(DIGITS, ["tracking.uri=${MLFLOW_SERVER}"]))


CRASH = """
import os
from tuning.cli.app import COMMANDS, main
COMMANDS["crash"] = ("Look", "__main__")
def crash():
    raise RuntimeError(f"the key {os.environ['HF_TOKEN']} is of no use")
main()
"""


def test_traceback_of_a_bug_holds_no_secret() -> None:
    env = {**os.environ, "HF_TOKEN": "hf_q8Zr41LmXw", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CRASH, "crash"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("RuntimeError: the key *** is of no use\n")


def test_files_and_folders_are_private(tune: Tune) -> None:
    tune("ls")  # sets the program's umask in this process
    paths = tune.sweep()
    add_checkpoint(paths, "t0000", 1)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [paths.root, *paths.root.rglob("*")]}
    assert len(modes) > 20
    assert {p: oct(m) for p, m in modes.items() if m & 0o077} == {}


def test_records_are_private_under_any_umask(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "file", b"x")
    append_line(tmp_path / "b" / "file", "{}")
    for file in (tmp_path / "a" / "file", tmp_path / "b" / "file"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_record_with_the_id_of_another_folder_is_damaged(tune: Tune) -> None:
    paths = tune.sweep()
    record = paths.trial("t0001").record
    raw = json.loads(record.read_bytes())
    record.write_text(json.dumps({**raw, "id": "../../../t0001"}))
    with pytest.raises(UserError, match="is the record of another trial"):
        read_trial(paths.trial("t0001"))
    assert "t0001/trial.json" in tune("best", "simulated", code=3).err


def test_checkpoint_with_a_link_to_the_outside_is_damaged(tune: Tune, tmp_path: Path) -> None:
    paths = tune.sweep()
    folder = add_checkpoint(paths, "t0000", 3)
    outside = tmp_path / "outside"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)
    with pytest.raises(CheckpointError, match="link that points outside of the folder"):
        verify(folder)


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/b", "..", "a b", "."])
def test_names_cannot_leave_the_storage(tune: Tune, name: str) -> None:
    assert "--name: must be " in tune.refused("run", DIGITS, "--name", name)
    tune.sweep()
    assert "no trial" in tune.refused("show", "simulated", name)
    assert "no soup" in tune.refused("export", "simulated", "--soup", name)
    assert not (tune.cwd / "x").exists()


LINKS = {
    "trials": ["resume", "mine"],
    "trials/t0001/reports.jsonl": ["resume", "mine"],
    "trials/t0001/logs": ["best", "mine", "--confirm", "1"],
    "trials/t0001/checkpoints": ["fetch", "mine"],
    "trials/t0001/checkpoints/step_00000003": ["reproduce", "mine", "t0001"],
    "results": ["report", "mine"],
    "results/soups": ["average", "mine"],
    "results/exports": ["export", "mine"],
    "inbox": ["add", "mine", "x=0.5"],
    "owner.lock.guard": ["stop", "mine"],
    "delivered.json": ["sync", "mine"],
    "study.journal": ["pause", "mine"],
}


@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_written_through_a_link_out_of_the_folder(
    tune: Tune, tmp_path: Path, link: str
) -> None:
    paths = tune.sweep("mine")
    add_checkpoint(paths, "t0001", 3)
    place, outside = paths.root / link, tmp_path / "outside"
    outside.mkdir()
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(outside / place.name)
    place.symlink_to(outside / place.name)
    before = {p: p.stat().st_mtime_ns for p in outside.rglob("*")}
    said = tune.refused(*LINKS[link])
    assert f"{place}: is a link to {outside / place.name}, outside of the sweep's folder" in said
    assert {p: p.stat().st_mtime_ns for p in outside.rglob("*")} == before


def test_links_within_the_folder_and_above_it_are_kept(tune: Tune, tmp_path: Path) -> None:
    paths = tune.sweep("mine")
    (paths.root / "newest").symlink_to("trials/t0001")
    paths.storage.root.rename(tmp_path / "disk")
    paths.storage.root.symlink_to(tmp_path / "disk")
    tune("resume", "mine")
    tune("report", "mine")


def test_record_is_not_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (tmp_path / "reports.jsonl").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        append_line(tmp_path / "reports.jsonl", "{}")
    (tmp_path / "state.json").symlink_to(outside)
    write_atomic(tmp_path / "state.json", b"new")
    assert outside.read_text() == "kept"
