"""The facts of a sweep that trackers show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from results.sweep_folder.folder import read_state
from tests.tuning.simulate import make_spec, new_sweep
from tuning.controller.tracking.sweep_facts import git_tags, sweep_facts


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *who, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_git_tags_name_the_commit_and_whether_files_differ(tmp_path: Path) -> None:
    assert git_tags(tmp_path) == {}
    git(tmp_path, "init")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_tags(tmp_path) == {"mlflow.source.git.commit": commit, "tune.git.dirty": "false"}
    (tmp_path / "new.py").write_text("1")  # untracked files do not count
    assert git_tags(tmp_path)["tune.git.dirty"] == "false"
    (tmp_path / "a.py").write_text("2")
    assert git_tags(tmp_path)["tune.git.dirty"] == "true"


def test_sweep_facts_hold_the_sweep_file_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "sesame-open-sesame")
    search = {"name": "tpe", "warm_start": ["earlier"]}
    spec = make_spec(description="opened by sesame-open-sesame", search=search)
    paths = new_sweep(spec, tmp_path)
    facts = sweep_facts(paths, spec)
    assert facts.key == read_state(paths).key
    assert "sesame" not in facts.artifacts["sweep.yaml"]
    assert facts.tags["goal"] == "min loss"
    assert facts.tags["tune.warm_start"] == "earlier"
    assert "tune.version.torch" in facts.tags
