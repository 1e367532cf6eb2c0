"""`tune submit`, `tune queue` and `tune cancel` where there is no engine."""

from __future__ import annotations

import pytest

from tests.cli.conftest import DIGITS, Tune

CLUSTER = ("--set", "cluster={max_nodes: 1, cpus: 4, memory: 4}")


def test_engine_that_is_not_here_is_one_line_and_leaves_no_folder(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    said = tune.refused("submit", DIGITS, "--to", "slurm", *CLUSTER)
    assert said == (
        "sbatch: no such program on this machine; "
        "run this where Slurm's programs are: on a login node\n"
    )
    assert not (tune.cwd / "sweeps" / "digits").exists()


def test_mistakes_are_one_line(tune: Tune) -> None:
    assert "did you mean 'slurm'?" in tune.refused("submit", DIGITS, "--to", "slrum", *CLUSTER)
    assert "needs cluster.max_nodes" in tune.refused("submit", DIGITS, "--to", "slurm")


def test_sweep_that_was_not_submitted(tune: Tune) -> None:
    tune.sweep("mine")
    assert "was submitted" in tune("queue").out
    assert "mine: was never submitted" in tune.refused("cancel", "mine")


def test_damaged_note_is_named(tune: Tune) -> None:
    tune.sweep("mine").job.write_text('{"engine": "slurm", "id": "1"}')
    assert "job.json: not readable" in tune("queue").err
    assert "job.json: not readable" in tune.refused("cancel", "mine")
