"""What `ls`, `show`, `best` and `resume` print of sweeps that were run without Ray."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.cli_speed import make_sweep
from results.paths import SweepPaths
from results.records.failures import Remedy
from results.records.machines import Machine
from results.records.trial import Attempt, TrialState, read_trial, write_trial
from results.storage.fencing import NullFence
from tests.cli.conftest import Tune, add_checkpoint
from tests.tuning.simulate import make_spec, open_run, train
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.folder import read_state, record_session_time
from tuning.controller.sweep_dir.lock import acquire_lock

TIMED = {"budget": {"trials": 50, "time": 5}}


def begin(tune: Tune, **changes: Any) -> tuple[SweepPaths, SweepController]:
    """A sweep whose first trial has reported twice and still runs."""
    paths = tune.sweep("mine", done=False, **changes)
    run = open_run(paths.root, make_spec(name="mine", **changes))
    train(run, run.next_trial(), upto=2)
    return paths, run


def test_ls_without_sweeps(tune: Tune) -> None:
    root = tune.cwd / "sweeps"
    assert tune("ls").out == f"no sweeps in {root}; start one with: tune run FILE\n"


def test_ls(tune: Tune) -> None:
    done = tune.sweep("done")
    tune.sweep("new", done=False)
    paths, run = begin(tune)
    zapped = tune.sweep("zapped").spec
    zapped.write_text("name: [\n")
    value = json.loads(tune("best", "done", "--json").out)["value"]
    newest = run.spec.metric, f"{json.loads(tune('best', 'mine', '--json').out)['value']:.4g}"

    with acquire_lock(paths.lock):
        said = tune("ls")
    assert said.lines[:5] == [
        ["sweep", "state", "trials", "best", "metric", "trainable"],
        ["done", "done", "6/6", f"{value:.4g}", "min", "loss", "digits"],
        ["mine", "running", "0/6", newest[1], "min", "loss", "digits"],
        ["new", "interrupted", "0/6", "-", "min", "loss", "digits"],
        ["zapped", "damaged"],
    ]
    assert said.out.splitlines()[5].startswith(f"zapped is damaged: {zapped}:2: not valid YAML: ")
    assert len(said.lines) == 6
    assert tune("ls").lines[2][1] == "interrupted"
    assert tune("ls", "--storage", done.root.parent).out == tune("ls").out


def test_a_sweep_that_spent_its_time_is_done(tune: Tune) -> None:
    paths, _ = begin(tune, **TIMED)
    assert tune("ls").lines[1][1] == "interrupted"
    state = json.loads(paths.state.read_text())
    paths.state.write_text(json.dumps({**state, "started": [1.0, 10.0], "spent": [2.5, 2.6]}))
    assert tune("ls").lines[1][1] == "done"
    assert tune("show", "mine").lines[-1] == ["0", "of", "50", "trials", "finished;", "done"]


def test_the_limit_that_ended_a_sweep_is_said_and_kept(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 50, "target": 100.0})
    assert tune("ls").lines[1][1] == "interrupted"  # nobody has said yet that it is over
    said = tune("resume", "mine").out
    assert "ended by budget.target: t0000 reached 100; spent " in said
    assert tune("ls").lines[1][1] == "done"
    shown = "1 of 50 trials finished; done, ended by budget.target: t0000 reached 100"
    assert shown in tune("show", "mine").out
    with record_session_time(paths, NullFence()):
        assert not read_state(paths).ended


def test_a_failed_trial_is_never_the_best(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 2})
    for trial_id in paths.trial_ids():
        files = paths.trial(trial_id)
        failed = read_trial(files).model_copy(update={"state": TrialState.FAILED})
        write_trial(files, failed)
    assert tune("ls").lines[1][3] == "-"
    assert "*" not in tune("show", "mine").out
    assert "none of 2 trials has a finite 'loss' yet" in tune.refused("best", "mine")


def test_show(tune: Tune) -> None:
    tune.sweep("mine")
    said = tune("show", "mine")
    best = json.loads(tune("best", "mine", "--json").out)
    assert said.lines[1] == ["trial", "state", "step", "loss", "x", "k", "time"]
    assert said.lines[2][:2] == [best["trial"], "*"]
    assert said.lines[2][4:7] == [
        f"{best['value']:.4g}",
        f"{best['params']['x']:.4g}",
        str(best["params"]["opt.k"]),
    ]
    values = [float(words[-4]) for words in said.lines[2:8]]
    assert values == sorted(values)
    assert said.lines[8:] == [[], ["6", "of", "6", "trials", "finished;", "done"]]


ONE_OF_EACH = [Remedy.RETRY, Remedy.SHRINK]


def test_show_counts_failures_and_tells_each(tune: Tune) -> None:
    paths = tune.sweep("mine")
    for trial, remedies in (("t0000", ONE_OF_EACH), ("t0001", ONE_OF_EACH[1:])):
        record = read_trial(paths.trial(trial))
        attempts = [
            Attempt(number=i, started=0, ended=1, error=f"rank 0: {r}", remedy=r)
            for i, r in enumerate(remedies, 1)
        ]
        update = {"attempts": tuple(attempts), "adjusted": {"micro_batch_size": 4}}
        write_trial(paths.trial(trial), record.model_copy(update=update))
    assert "failures: 2 shrink, 1 retry" in tune("show", "mine").out
    said = tune("show", "mine", "t0000").out
    assert "attempt 2 took 1s with 1 worker: shrink: rank 0: shrink" in said
    assert 'adjusted {"micro_batch_size": 4}' in said


def test_show_tells_what_a_trial_keeps_off(tune: Tune) -> None:
    paths = tune.sweep("mine")
    record = read_trial(paths.trial("t0000"))
    sick = (Machine(id="0123456789", name="gpu-7"),)
    attempts = (
        Attempt(number=1, started=0, ended=1, error="ECC", blamed=sick, workers=2),
        Attempt(number=2, started=1, ended=2, kept_off=sick),
        Attempt(number=3, started=2, ended=3, kept_off=sick, in_place=True),
    )
    write_trial(paths.trial("t0000"), record.model_copy(update={"attempts": attempts}))
    said = tune("show", "mine", "t0000").out
    assert "attempt 1 took 1s with 2 workers: ECC\n  blamed on gpu-7 (01234567)\n" in said
    assert "with 1 worker\n  kept off gpu-7 (01234567)\n" in said
    assert "\n  there is no machine but gpu-7 (01234567), so it is tried there again\n" in said


def test_show_says_how_to_go_on(tune: Tune) -> None:
    paths, _ = begin(tune)
    assert tune("show", "mine").out.splitlines()[-2:] == [
        "0 of 6 trials finished; interrupted",
        "go on with: tune resume mine",
    ]
    with acquire_lock(paths.lock):
        assert "finished; driven by process " in tune("show", "mine").out
    # elsewhere it has to be named by its folder
    tune.monkeypatch.chdir("/")
    said = tune("show", paths.root).out
    assert said.endswith(f"go on with: tune resume {paths.root}\n")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_value_is_ever_cut(tune: Tune, width: int) -> None:
    space = {f"a_long_name_{i}": {"uniform": [0.0, 1e-5]} for i in range(9)}
    paths = tune.sweep("mine", done=False, space=space)
    run = open_run(paths.root, make_spec(name="mine", space=space))
    job = run.next_trial()
    train(run, job, upto=2, value=lambda _, step: 1 / 3 / step)
    wide = tune("show", "mine").lines
    tune.monkeypatch.setenv("COLUMNS", str(width))
    said = tune("show", "mine")
    assert all(len(line) <= width for line in said.out.splitlines())
    assert "…" not in said.out
    trial = next(words for words in said.lines if words[:1] == ["t0000"])
    shown = len(trial) - 6
    assert trial[:-1] == wide[-4][: 5 + shown]
    missing = " ".join(said.out.split()).partition("left out: ")[2].partition(" 0 of 6")[0]
    assert missing.split(", ") == list(space)[shown:]
    assert shown == {40: 0, 60: 2, 80: 4, 120: 8}[width]


def test_text_is_shown_as_it_is(tune: Tune) -> None:
    changes = {"space": {"x": {"choice": ["[/b]", ":boom:"]}}, "failure": {"max_retries": 0}}
    paths = tune.sweep("mine", done=False, **changes)
    run = open_run(paths.root, make_spec(name="mine", **changes))
    job = run.next_trial()
    error = "RuntimeError: no [/dev/null] :boom: [red]"
    run.on_failed(job.trial_id, error)
    assert tune("show", "mine").lines[1][4] == job.config["x"]
    lines = tune("show", "mine", "t0000").out.splitlines()
    assert lines[0] == f"t0000 failed: {error}"
    assert lines[3].startswith("attempt 1 took ")
    assert lines[3].endswith(f"s with 1 worker: retry: {error}")


def test_show_trial(tune: Tune) -> None:
    paths = tune.sweep("mine", fixed={"epochs": 9})
    record = read_trial(paths.trial("t0000"))
    whole, broken = (add_checkpoint(paths, "t0000", step) for step in (3, 6))
    (broken / "model.safetensors").write_bytes(b"WEIGHTS")
    lines = tune("show", "mine", "t0000").out.splitlines()
    assert lines[:3] == [
        f"t0000 {record.state}: {record.reason}",
        f"searched {json.dumps(record.params)}",
        'fixed {"epochs": 9}',
    ]
    assert [line.split()[:3] for line in lines if line.startswith("step")] == [
        ["step", str(step), "loss"] for step in range(1, record.end_step + 1)
    ]
    assert lines[-4].startswith("attempt 1 took ")
    assert lines[-3:] == [
        f"  logs {paths.trial('t0000').attempt(1)}",
        f"checkpoints of steps 3, 6 in {whole.parent}",
        f"damaged {broken}: model.safetensors has another SHA-256 than its manifest says",
    ]
    assert tune("show", "mine", "t0001").out.splitlines()[-1] == "no checkpoints"


def test_best(tune: Tune) -> None:
    paths = tune.sweep("mine", fixed={"epochs": 9}, seed=7)
    found = json.loads(tune("best", "mine", "--json").out)
    record = read_trial(paths.trial(found["trial"]))
    assert found == {
        "sweep": "mine",
        "trial": record.id,
        "metric": "loss",
        "mode": "min",
        "value": found["value"],
        "values": {"loss": found["value"]},
        "step": 9,
        "why": "its last loss is the lowest of 6 trials",
        "confirmed": False,
        "params": record.params,
        "config": {"epochs": 9, "x": record.params["x"], "opt": {"k": record.params["opt.k"]}},
        "seed": record.seed,
        "checkpoint": None,
    }
    checkpoint = add_checkpoint(paths, record.id, 9)
    assert json.loads(tune("best", "mine", "--json").out)["checkpoint"] == str(checkpoint)
    assert tune("best", str(paths.root)).out == (
        f"{record.id}  loss {found['value']:.4g} at step 9\n"
        f"  x: {record.params['x']:.4g}\n"
        f"  opt.k: {record.params['opt.k']}\n"
        "why        its last loss is the lowest of 6 trials\n"
        f"checkpoint {checkpoint}\n"
        "confirm    tune best mine --confirm 3  (so far measured once, by the search)\n"
    )


def test_a_thousand_trials(tune: Tune) -> None:
    paths = make_sweep(tune.cwd / "sweeps", trials=1000, reports=20)
    row = ["large", "done", "1000/1000", "0.999", "max", "accuracy", "digits"]
    assert tune("ls").lines[1] == row
    found = json.loads(tune("best", "large", "--json").out)
    assert (found["trial"], found["value"], found["step"]) == ("t0999", 0.999, 20)
    assert found["checkpoint"] == str(paths.trial("t0999").checkpoint(20))
    ids = [words[0] for words in tune("show", "large").lines if words and words[0][0] == "t"]
    assert ids == ["trial", *(f"t{i:04d}" for i in reversed(range(1000)))]
    assert tune.refused("show", "large", "t1000") == (
        "large: no trial 't1000'; it has t0000 to t0999\n"
    )


def test_resume_of_a_finished_sweep_says_it_all_again(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 12})
    before = tune("show", "mine").out
    said = tune("resume", "mine").out
    assert said.startswith(f"sweep mine in {paths.root}\n")
    assert "… 2 more: tune show mine" in said
    best = json.loads(tune("best", "mine", "--json").out)
    assert f"winner {best['trial']}: loss {best['value']:.4g} (x=" in said
    assert said.endswith(f"folder {paths.root}\n\ninspect    tune show mine {best['trial']}\n")
    assert paths.leaderboard.is_file()
    assert tune("show", "mine").out == f"{before.rstrip()}, ended by budget.trials: 12 trials\n"


def test_next_steps_are_those_that_work(tune: Tune) -> None:
    """`Plain` has no transformers form, and only trials of one start can be averaged."""
    tune.write(
        "plain.py",
        "from trainables.digits.trainable import Digits\n"
        "class Plain(Digits):\n"
        "    implementation = ('trainables.digits.loop',)\n",
    )
    paths = tune.sweep("mine", budget={"trials": 3}, trainable="plain.py:Plain")
    board = [words[0] for words in tune("show", "mine").lines[2:5]]
    for trial_id in board[:2]:
        folder = add_checkpoint(paths, trial_id, 9)
        (folder / "lineage.json").write_text(f'{{"init": "{trial_id}"}}')
    assert "average" not in tune("resume", "mine").out
    (folder / "lineage.json").write_text(f'{{"init": "{board[0]}"}}')
    said = tune("resume", "mine").out
    assert "average    tune average mine\n" in said
    assert "export" not in said
    other = tune.sweep("other")
    assert "export" not in tune("resume", "other").out, "it has no checkpoint"
    add_checkpoint(other, json.loads(tune("best", "other", "--json").out)["trial"], 9)
    assert "export     tune export other --to hf\n" in tune("resume", "other").out
