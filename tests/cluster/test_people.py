"""A storage of several people: who is of its group reads, stops and resumes; others do not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.paths import Storage
from results.records.trial import TrialState, read_trials
from tests.cluster.people import Person, make_people, make_team_storage
from tests.waiting import wait_for

SWEEP = """
name: shared
trainable: digits
metric: accuracy
mode: max
space: {learning_rate: {loguniform: [1.0e-3, 1.0e-1]}}
fixed: {epochs: 5}
scheduler: {name: none}
resources: {concurrency: 1}
budget: {trials: 1000}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="people-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_the_group_continues_what_one_of_it_began(folder: Path) -> None:
    alice, bob, eve = make_people(folder, ["alice", "bob", "eve"], team=["alice", "bob"])
    storage = make_team_storage(folder)
    of_team = ("--storage", str(storage))
    began = stop_as_another(alice, bob, storage)
    assert began.count("alice@") == 1, "who began it"

    for command in (["ls"], ["show", "shared"], ["stop", "shared"], ["resume", "shared"]):
        said = eve.tune(*command, *of_team, code=2)
        assert len(said.strip().splitlines()) == 1, said
        assert "Permission denied" in said

    paths = Storage(storage).sweep("shared")
    there = len(read_trials(paths))
    bob.tune("resume", "shared", *of_team, "--trust", "--trials", str(there + 1))
    newest = read_trials(paths)[-1]
    assert (newest.number, newest.state) == (there, TrialState.COMPLETED)
    assert newest.id in alice.tune("show", "shared", *of_team), "what the other one wrote"
    assert "alice@" in bob.tune("ls", *of_team)
    assert len({file.stat().st_uid for file in paths.root.rglob("*")}) == 2


def stop_as_another(first: Person, other: Person, storage: Path) -> str:
    """A sweep of one person, which another one stops; returns what `tune ls` says to them."""
    (first.home / "sweep.yaml").write_text(SWEEP)
    (first.home / "sweep.yaml").chmod(0o644)
    sweep = first.start("run", "sweep.yaml", "--storage", str(storage))
    curve = Storage(storage).sweep("shared").trial("t0000").reports
    wait_for(curve.exists, sweep)
    listed = other.tune("ls", "--storage", str(storage))
    assert "running" in listed
    other.tune("stop", "shared", "--storage", str(storage))
    out, err = sweep.communicate()
    assert sweep.returncode in (0, 130), f"{out}\n{err}"
    return listed
