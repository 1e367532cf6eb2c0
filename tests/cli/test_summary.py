"""What a session prints at its end: the outcome, and commands that work."""

from __future__ import annotations

from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement, write
from results.sweep_folder.folder import read_state
from tests.cli.conftest import Tune, add_checkpoint


def test_resume_of_a_finished_sweep_prints_the_summary(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 12})
    before = tune("show", "mine").out
    output = tune("resume", "mine").out
    assert output.startswith(f"sweep mine in {paths.root}\n")
    assert "… 2 more: tune show mine" in output
    best = tune.best("mine")
    assert f"winner {best['trial']}: loss {best['value']:.4g} (x=" in output
    assert output.endswith(f"folder {paths.root}\n\ninspect    tune show mine {best['trial']}\n")
    assert paths.leaderboard.is_file()
    assert "early values: of 7 complete trials" in output
    assert tune("show", "mine").out == f"{before.rstrip()}, ended by budget.trials: 12 trials\n"


def test_summary_suggests_only_commands_that_work(tune: Tune) -> None:
    """`Plain` cannot be exported to transformers; an average needs a common start."""
    tune.write(
        "plain.py",
        "from trainables import Trainable\n"
        "from trainables.digits.config import Digits\n"
        "class Plain(Digits):\n"
        "    export_hf = Trainable.export_hf\n",
    )
    paths = tune.sweep("mine", budget={"trials": 3}, trainable="plain.py:Plain")
    board = [words[0] for words in tune("show", "mine").lines[1:4]]
    for trial_id in board[:2]:
        folder = add_checkpoint(paths, trial_id, 9)
        (folder / "lineage.json").write_text(f'{{"init": "{trial_id}"}}')
    assert "average" not in tune("resume", "mine").out
    (folder / "lineage.json").write_text(f'{{"init": "{board[0]}"}}')
    output = tune("resume", "mine").out
    assert "average    tune average mine\n" in output
    assert "export" not in output
    other = tune.sweep("other")
    assert "export" not in tune("resume", "other").out, "it has no checkpoint"
    add_checkpoint(other, tune.best("other")["trial"], 9)
    assert "export     tune export other --to hf\n" in tune("resume", "other").out


def test_resume_of_a_finished_sweep_takes_no_time(tune: Tune) -> None:
    paths = tune.sweep("mine")
    tune("resume", "mine")
    before = read_state(paths)
    assert before.ended == "budget.trials: 6 trials"
    tune("resume", "mine")
    assert read_state(paths) == before


def test_summary_inspects_the_confirmed_winner(tune: Tune) -> None:
    paths = tune.sweep("mine")
    ranked = [words[0] for words in tune("show", "mine").lines[1:3]]
    trials = tuple(
        ConfirmedTrial(trial=trial, series={"loss": Remeasurement(search=0.1, test=(2.0 - rank,))})
        for rank, trial in enumerate(ranked)
    )
    write(paths, Confirmation(modes={"loss": "min"}, seeds=(1,), trials=trials))
    assert tune("resume", "mine").out.endswith(f"inspect    tune show mine {ranked[1]}\n")
